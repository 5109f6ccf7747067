"""Pattern search: lower a function of a few numbers by steps along the axes, without bounds and without derivatives."""

import itertools


class PatternSearch:
    """Hooke and Jeeves' search with halving steps, on a lattice so that no point is tried twice.

    Parameters
    ----------
    function : callable
        Of a tuple of numbers; +inf where it has no value.
    steps : sequence of float
        The lengths of steps in turn, each half of the one before.
    gain : float
        Least relative decrease that counts.
    most : int
        Most points to try.
    far : float
        Where to stop: no number leaves [-far, far].

    Attributes
    ----------
    tried : dict
        The function's value at every point tried.
    """

    def __init__(self, function, steps=(1.0, 0.5, 0.25, 0.125), gain=1e-4, most=200, far=8.0):
        self.function, self.steps, self.gain, self.most, self.far = function, steps, gain, most, far
        self.tried = {}

    def value(self, x):
        """The function at x, +inf where no more points may be tried."""
        x = tuple(round(c, 6) + 0.0 for c in x)
        if x not in self.tried:
            if len(self.tried) >= self.most or max(map(abs, x), default=0.0) > self.far:
                return float("inf")
            self.tried[x] = self.function(x)
        return self.tried[x]

    def scan(self, center, directions, offsets):
        """Try every combination of offsets along some directions from a center; give the best."""
        for k, combination in enumerate(itertools.product(offsets, repeat=len(directions))):
            # Backwards in every second row: neighbours in time are neighbours in place.
            if len(directions) > 1 and (k // len(offsets)) % 2:
                combination = (*combination[:-1], offsets[::-1][k % len(offsets)])
            self.value(_moved(center, directions, combination))
        return self.best()

    def search(self, start):
        """Descend from a start; give the best point of all that were tried."""
        x = tuple(start)
        for step in self.steps:
            moved = True
            while moved:
                before = x
                for axis in range(len(x)):
                    x = self._along(x, axis, step)
                moved = x != before
                if moved:  # once more in the direction of the whole move
                    ahead = tuple(2 * a - b for a, b in zip(x, before, strict=True))
                    x = ahead if self._better(ahead, x) else x
        self.value(x)
        return self.best()

    def best(self):
        """The point tried with the lowest value."""
        return min(self.tried, key=self.tried.get)

    def _along(self, x, axis, step):
        for sign in (1.0, -1.0):
            y = _moved(x, [_unit(len(x), axis)], [sign * step])
            if self._better(y, x):
                while self._better(z := _moved(y, [_unit(len(x), axis)], [sign * step]), y):
                    y = z
                return y
        return x

    def _better(self, y, x):
        here = self.value(x)
        return self.value(y) < here - self.gain * abs(here) if here < float("inf") else self.value(y) < here


def _moved(x, directions, lengths):
    for direction, length in zip(directions, lengths, strict=True):
        x = tuple(a + length * b for a, b in zip(x, direction, strict=True))
    return x


def _unit(n, axis):
    return tuple(float(k == axis) for k in range(n))
