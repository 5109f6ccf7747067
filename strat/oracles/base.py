"""The oracle protocol: functions of (K, n) parameters, batched over strata."""


class Oracle:
    """A convex function of each stratum's parameters.

    A method that exists is a capability; ``has`` asks for one. ``theta`` and ``v`` are arrays (K, n).

    * ``value(theta)``: (K,), +inf outside the domain, never nan.
    * ``value_and_gradient(theta)``: (K,) and (K, n).
    * ``arguments(theta)``: affine images of theta, which the two above take as a second argument instead of computing
      them: an array or a list of arrays and None, or None.
    * ``hessian_operator(theta)``: the block-diagonal Hessian at theta as a map of (K, n) to (K, n).
    * ``hessian(theta)``: its blocks (K, n, n), where they are cheap.
    * ``prox(v, t)``: argmin_z f(z) + ‖z − v‖² / (2t), t a positive number or one for each stratum.
    """

    n = 0
    quadratic = False  # whether the Hessian is the same everywhere

    def has(self, name):
        """Whether the oracle has a method."""
        return callable(getattr(self, name, None))

    def value(self, theta):
        """Value of each stratum."""
        raise NotImplementedError

    def arguments(self, theta):
        """None: the other methods take theta alone."""
