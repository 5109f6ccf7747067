"""What a rule is: one nonlinear atom with its values and derivatives, on many records at once.

Arrays carry the records (or strata) on their leading axis. ``forward`` evaluates; ``pullback`` maps a gradient
of the output to one of argument ``i``; ``pushforward`` maps tangents of the arguments to one of the output;
``curve`` is the derivative of the pullback along the tangents. Together they give values, gradients and
Hessian products of any composition.
"""

import numpy as np

from strat.rules import atoms, forms


class Rule:
    """Base class of rules. A method that is defined is a capability."""

    #: "none": differentiable inside the domain; "zero": only where the output is 0 not; "some": elsewhere too.
    kinks = "none"
    #: Whether the derivative vanishes at 0, so that a "zero" kink of the argument disappears.
    flat_at_zero = False
    #: Whether the second derivatives are available.
    curved = True
    #: Whether they are the same everywhere.
    quadratic = False
    #: Whether they jump somewhere.
    jumps = False
    #: Whether it meets no overflow, division by zero or invalid operation, whatever the arguments.
    quiet = False
    #: Whether each output entry depends on one entry of each argument.
    separable = False
    #: Whether it is not convex, so that it occurs in predictions only.
    predicts = False
    #: How the prox of the bare atom is computed, for the table of rules.
    prox = None
    #: What the closed forms combine with (see GroupBlock): "absolute" (grows in every |u|), "ordered" (keeps the order).
    invariance = None
    #: (argument, closed interval) outside which entries of an argument are illegal.
    intervals = ()
    #: ``prox_rows(u, step)``: argmin_z step·f(z) + ½‖z − u‖² of each group, u (K, groups, *shape), step (K, groups).
    prox_rows = None
    #: ``project_rows(u, radius)``: the nearest point with f(z) <= radius, radius (K, groups).
    project_rows = None
    #: ``pair_curvature(args, out, memo, g, r, s)``: second derivatives of each row's output in its entries r and s,
    #: times the weights g of the outputs.
    pair_curvature = None
    #: ``prox_eigenvalues(values, step)``: the same as prox_rows for the eigenvalues (K, d) of a symmetric argument,
    #: step (K,) with the sign of the weight.
    prox_eigenvalues = None

    @property
    def key(self):
        """What tells two instances apart."""
        return (type(self).__name__, *sorted(self.__dict__.items()))

    @property
    def name(self):
        """The rule's name in printed programs."""
        return type(self).__name__

    @classmethod
    def form(cls, walker, e, args):
        """Form of the atom ``e`` over the forms of its arguments."""
        raise NotImplementedError

    @staticmethod
    def example():
        """``(expression, {variable: point})``: the atom at its simplest and a point inside its domain."""
        raise NotImplementedError

    def forward(self, args):
        """Output, and a memo for the other methods."""
        raise NotImplementedError

    def domain(self, args):
        """Mask of the leading axis where the arguments are legal; None where everything is."""
        return

    @property
    def restricted(self):
        """Whether some arguments are illegal."""
        return type(self).domain is not Rule.domain


class Elementwise(Rule):
    """A function of entries: the output's shape is that of every argument."""

    separable = True
    #: Closed interval outside which a first argument is illegal.
    interval = (-np.inf, np.inf)
    #: ``scalar_prox(u, step, *others)``: argmin_z step·f(z) + ½(z − u)² by entry, step with the sign of the weight.
    scalar_prox = None

    @classmethod
    def form(cls, walker, e, args):
        shape = e.shape
        return walker.apply(cls(), [forms.broadcast(a, shape) for a in args], shape, e)

    def value(self, *args):
        """The function's value."""
        raise NotImplementedError

    def forward(self, args):
        return self.value(*args), None

    def partial(self, i, args, out, memo):
        """Partial derivative in argument i."""
        raise NotImplementedError

    def mixed(self, i, j, args, out, memo):
        """Second partial derivative in arguments i and j."""
        raise NotImplementedError

    def pullback(self, i, args, out, memo, g):
        return _times(g, self.partial(i, args, out, memo))

    def pushforward(self, args, out, memo, tangents):
        return sum(_times(t, self.partial(i, args, out, memo)) for i, t in tangents.items())

    def curve(self, i, args, out, memo, g, tangents):
        return _times(g, sum(_times(t, self.mixed(i, j, args, out, memo)) for j, t in tangents.items()))

    @property
    def intervals(self):
        """(argument, closed interval) outside which entries of an argument are illegal."""
        return ((0, self.interval),)

    @property
    def restricted(self):
        """Whether some arguments are illegal."""
        return type(self).domain is not Elementwise.domain or tuple(self.interval) != (-np.inf, np.inf)

    def domain(self, args):
        low, high = self.interval
        if low == -np.inf and high == np.inf:
            return None
        inside = (args[0] >= low) & (args[0] <= high)
        return inside.reshape(len(inside), -1).all(axis=1)


class Rows(Rule):
    """A function of each row of its first argument: shape (groups, length) to (groups,)."""

    @classmethod
    def form(cls, walker, e, args):
        rows = grouped(args[0], atoms.axis_of(e))
        return walker.apply(cls(), [rows], rows.shape[:1], e).reshaped(e.shape)


def grouped(form, axis):
    """The form as (groups, length): kept axes flattened first, reduced axes last."""
    if axis is None:
        return form.reshaped((1, form.size))
    positions = np.arange(form.size).reshape(form.shape)
    kept = [d for d in range(positions.ndim) if d not in axis]
    positions = np.transpose(positions, [*kept, *axis])
    groups = int(np.prod([form.shape[d] for d in kept], dtype=int))
    length = int(np.prod([form.shape[d] for d in axis], dtype=int))
    return forms.take(form, positions.reshape(groups, length))


def _times(g, factor):
    """Product with 0 · inf = 0: what has no weight has no part in a gradient."""
    product = g * factor
    if not np.isfinite(product.sum()) and not np.isfinite(product).all():
        product = np.where(g == 0, 0.0, product)
    return product
