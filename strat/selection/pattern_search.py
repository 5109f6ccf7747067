"""Pattern search: lower a function of a few numbers by steps along the axes, without bounds and without derivatives."""


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
        No number leaves [-far, far].
    """

    def __init__(self, function, steps=(1.0, 0.5, 0.25), gain=1e-4, most=200, far=8.0):
        self.function, self.steps, self.gain, self.most, self.far = function, steps, gain, most, far
        self.tried = {}  # the function's value at every point tried

    def value(self, x):
        """The function at x, +inf where no more points may be tried."""
        x = tuple(round(c, 6) + 0.0 for c in x)
        if x not in self.tried:
            if len(self.tried) >= self.most or max(map(abs, x), default=0.0) > self.far:
                return float("inf")
            self.tried[x] = self.function(x)
        return self.tried[x]

    def cover(self, start, axes, values):
        """Try all of some values on each axis in turn, from the best point so far, until no axis helps; return it.

        Where an axis no longer matters, far out, steps say nothing; this finds what lies beyond.
        """
        x, before = tuple(start), None
        while x != before:
            before = x
            for axis in axes:
                line = [(*x[:axis], v, *x[axis + 1 :]) for v in values]
                x = min([x, *line], key=self.value)
        return x

    def search(self, start, diagonals=()):
        """Descend from a start along the axes; return the best point of all that were tried.

        The longest steps also go along `diagonals`, for valleys that run between the axes.
        """
        x = tuple(start)
        axes = [tuple(float(k == axis) for k in range(len(x))) for axis in range(len(x))]
        for step in self.steps:
            moved = True
            while moved:
                before = x
                for direction in axes:
                    x = self._along(x, direction, step)
                for direction in diagonals if x == before and step == self.steps[0] else ():
                    x = self._along(x, direction, step)
                moved = x != before
                if moved:  # once more in the direction of the whole move
                    ahead = tuple(2 * a - b for a, b in zip(x, before, strict=True))
                    x = ahead if self._better(ahead, x) else x
        self.value(x)
        return self.best()

    def best(self):
        """The point tried with the lowest value."""
        return min(self.tried, key=self.tried.get)

    def _along(self, x, direction, step):
        """Steps along one direction, forwards or else backwards, as long as they help."""
        for length in (step, -step):
            y = _moved(x, [direction], [length])
            if self._better(y, x):
                while self._better(z := _moved(y, [direction], [length]), y):
                    y = z
                return y
        return x

    def _better(self, y, x):
        here = self.value(x)
        return self.value(y) < (here - self.gain * abs(here) if here < float("inf") else here)


def _moved(x, directions, lengths):
    for direction, length in zip(directions, lengths, strict=True):
        x = tuple(a + length * b for a, b in zip(x, direction, strict=True))
    return x
