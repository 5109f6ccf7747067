"""Squares, powers and functions built from them: quadratic forms, p-norms, geometric means, Huber's function; products."""

import cvxpy as cp
import numpy as np

from strat.errors import NoOracleError
from strat.oracles.base import namespace
from strat.oracles.thresholds import onto_l2_ball
from strat.rules import atoms, forms, rule
from strat.rules.base import Elementwise, Rows, Rule, Scalar, at_point, grouped
from strat.rules.piecewise import Abs


class Norm2(Rows):
    """‖u‖₂ of each row; prox shrinks the row as a whole."""

    kinks = "zero"
    invariance = "absolute"
    project = staticmethod(onto_l2_ball)

    def prox(self, u, step):
        norm = np.sqrt((u * u).sum(axis=-1))
        return u * np.maximum(1.0 - step / np.where(norm > 0, norm, np.inf), 0.0)[..., None]

    def forward(self, args):
        norm = np.sqrt((args[0] ** 2).sum(axis=-1))
        return norm, args[0] / np.where(norm > 0, norm, 1.0)[..., None]

    def curve(self, i, args, out, memo, g, tangents):
        t = tangents[0]
        radial = memo * (memo * t).sum(axis=-1, keepdims=True)
        return (g / np.where(out > 0, out, np.inf))[..., None] * (t - radial)


@rule(atoms.Pnorm)
class Pnorm(Rows):
    """‖u‖_p of each row."""

    kinks = "zero"
    intervals = property(lambda self: {0: (0.0, np.inf)} if self.p < 1 else {})
    example = at_point(lambda u: cp.pnorm(u, 3), u=[0.3, -1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        rows, p = grouped(args[0], atoms.axis_of(e)), atoms.exponent(e)
        if rows.shape[1] == 1 and p >= 1:
            return walker.apply(Abs(), [rows], rows.shape, e).reshaped(e.shape)
        rule_ = Norm2() if p == 2 else cls(p=p)
        return walker.apply(rule_, [rows], rows.shape[:1], e).reshaped(e.shape)

    def forward(self, args):
        u = np.abs(args[0])
        top = u.max(axis=-1, keepdims=True)
        scaled = u / np.where(top > 0, top, 1.0)
        return top[..., 0] * (scaled**self.p).sum(axis=-1) ** (1.0 / self.p), None

    def pullback(self, i, args, out, memo, g):
        ratio = np.abs(args[0]) / np.where(out > 0, out, 1.0)[..., None]
        return g[..., None] * np.sign(args[0]) * ratio ** (self.p - 1.0)


class Square(Scalar):
    """u², however it is written; squares of affine expressions join into one quadratic."""

    curvature = "constant"
    flat_at_zero = portable = True
    invariance = "absolute"
    value = staticmethod(lambda u: u * u)
    slopes = (lambda u, out: 2.0 * u, lambda u, out: 2.0)
    prox = staticmethod(lambda u, step: u / (1.0 + 2.0 * step))
    # The sum of the entries' squares is at most the radius.
    project = staticmethod(lambda u, radius: onto_l2_ball(u, np.sqrt(radius)))


@rule(atoms.Power)
class PowerRule(Elementwise):
    """u^p on CVXPY's domain: all numbers for even p, u >= 0 (p > 0) or u > 0 (p < 0) otherwise."""

    even = property(lambda self: self.p > 0 and self.p % 2 == 0)  # whether that of the absolute value
    intervals = property(lambda self: {} if self.even else {0: (0.0, np.inf)})
    steep = property(lambda self: (0,) if 0 < self.p < 1 else ())
    closed = property(lambda self: (0,) if self.p > 1 and not self.even else ())
    flat_at_zero = property(lambda self: self.p > 1)
    example = at_point(lambda u: cp.sum(cp.power(u, 3) + cp.power(u, -1) - cp.sqrt(u)), u=[0.5, 1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        (u,) = args
        order = walker(e.p) if isinstance(e.p, atoms.Expression) else forms.constant(float(e.p))
        if not order.is_constant:
            if walker.symbols.depends(order.coefficient) & 1:
                raise NoOracleError(f"the exponent of {e} is record data, not a number or hyperparameter.")
            return walker.apply(cls(p=None), [u], e.shape, e)
        p = float(order.array())
        if p in (0, 1):
            return u if p == 1 else forms.constant(np.ones(e.shape))
        return square(walker, u, e) if p == 2 else walker.apply(cls(p=p), [u], e.shape, e)

    def value(self, u, less=0):
        """u^(p − less)."""
        p = self.p - less
        u = np.abs(u) if self.even else np.maximum(u, 0.0)
        if p != int(p) or not 1 < abs(p) <= 4:
            return u**p
        out = u * u if abs(p) < 4 else (u * u) ** 2  # products: several times faster than powers
        out = out * u if abs(p) == 3 else out
        return out if p > 0 else 1.0 / out

    def partial(self, i, args, out, memo):
        sign = np.sign(args[0]) if self.even else 1.0
        return self.p * sign * self.value(args[0], less=1)

    def mixed(self, i, j, args, out, memo):
        # For 1 < p < 2 the curvature at 0 is infinite; the one at 1e-8 keeps Newton's method going.
        u = np.maximum(args[0], 1e-8) if 1 < self.p < 2 else args[0]
        return self.p * (self.p - 1) * self.value(u, less=2)


def square(walker, u, e):
    """Form of u²; squares of 2-norms and absolute values become sums of squares of their arguments."""
    node, entries = walker.symbols.single(u) or (None, None)
    if node is None or not isinstance(node.rule, (Abs, Norm2)):
        return walker.apply(Square(), [u], u.shape, e)
    length = node.forms[0].size // node.size
    inner = node.forms[0].reshaped((node.size, length))
    positions = entries[:, None] * length + np.arange(length)
    scale = forms.constant(u.scale[:, None] * np.ones((1, length)))
    inside = forms.multiply(walker.symbols, scale, forms.take(inner, positions), positions.shape)
    inside = inside.reshaped((*u.shape, length))
    return walker.sum(square(walker, inside, e), u.shape, axis=(len(u.shape),))


@rule(atoms.quad_over_lin)
class QuadOverLin(Rule):
    """Σ u² / y of each row, y > 0; a sum of squares where y is not a variable."""

    intervals = {1: (0.0, np.inf)}
    steep, scale_free = (1,), True
    example = at_point(cp.quad_over_lin, u=[1.0, -2.0], y=1.5)

    @classmethod
    def form(cls, walker, e, args):
        u, y = args
        y = y.reshaped(()) if y.size == 1 else y
        if not y.is_data:
            rows = grouped(u, atoms.axis_of(e))
            y = forms.broadcast(y, rows.shape[:1])
            return walker.apply(cls(), [rows, y], rows.shape[:1], e).reshaped(e.shape)
        total = walker.sum(square(walker, u, e), e.shape, atoms.axis_of(e))
        return walker.times(walker.reciprocal(y, e), total, e.shape, e)

    def forward(self, args):
        u, y = args
        squares = (u * u).sum(axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            out = squares / y
        return np.where((squares == 0) & (y == 0), 0.0, out), None

    def pullback(self, i, args, out, memo, g):
        u, y = args
        g = _over(g, y)
        return (2.0 * g)[..., None] * u if i == 0 else -g * out

    def curve(self, i, args, out, memo, g, tangents):
        u, y = args
        du, dy = tangents.get(0, np.zeros_like(u)), tangents.get(1, np.zeros_like(y))
        g, dy = _over(g, y), _over(dy, y)
        if i == 0:
            return (2.0 * g)[..., None] * (du - u * dy[..., None])
        return 2.0 * g * (out * dy - _over((u * du).sum(axis=-1), y))


def _over(g, y):
    """g / y, and 0 at the tip of the domain, (0, 0), where 0 is a subgradient."""
    return np.where(y == 0, 0.0, g / np.where(y == 0, 1.0, y))


@rule(atoms.QuadForm)
class QuadForm(Rule):
    """uᵀPu with P a constant, a hyperparameter or record data."""

    flat_at_zero = True
    example = at_point(lambda u: cp.quad_form(u, np.array([[2.0, 0.5], [0.5, 1.0]])), u=[1.0, -2.0])

    @classmethod
    def form(cls, walker, e, args):
        u, p = args[0].reshaped((args[0].size,)), walker.opaque(args[1])
        return walker.apply(cls(), [u, p], (), e)

    def forward(self, args):
        u, p = args
        pu = np.matmul(p, u[..., None])[..., 0]
        return (u * pu).sum(axis=-1), pu

    def pullback(self, i, args, out, memo, g):
        u, p = args
        return g[..., None] * (memo + np.matmul(np.swapaxes(p, -1, -2), u[..., None])[..., 0])

    def curve(self, i, args, out, memo, g, tangents):
        p, t = args[1], tangents[0]
        return g[..., None] * np.matmul(p + np.swapaxes(p, -1, -2), t[..., None])[..., 0]


@rule(atoms.huber)
class Huber(Elementwise):
    """u² for |u| <= M, 2M|u| - M² beyond (CVXPY's scale)."""

    intervals = {1: (0.0, np.inf)}
    flat_at_zero = portable = True
    curvature = "jumps"
    example = at_point(lambda u: cp.sum(cp.huber(u, 0.7)), u=[0.2, -0.5, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        threshold = walker.opaque(walker(e.M))
        return walker.apply(cls(), [args[0], forms.broadcast(threshold, e.shape)], e.shape, e)

    def value(self, u, m):
        inside = namespace(u).clip(u, -m, m)
        return inside * (2.0 * u - inside)

    def prox(self, u, step, m):
        """The prox of the square near 0, and a shift by 2 step m beyond."""
        z = u / (1.0 + 2.0 * step)
        return np.where(np.abs(z) <= m, z, u - 2.0 * step * m * np.sign(u))

    def partial(self, i, args, out, memo):
        return 2.0 * namespace(args[0]).clip(args[0], -args[1], args[1])

    def mixed(self, i, j, args, out, memo):
        (u, m), xp = args, namespace(args[0])
        return 2.0 * xp.asarray(xp.abs(u) <= m, dtype=u.dtype)


@rule(atoms.GeoMean)
class GeometricMean(Rows):
    """Π u_j^w_j of each row with weights that sum to 1, u >= 0: concave."""

    intervals = {0: (0.0, np.inf)}
    steep = (0,)
    example = at_point(lambda u: -cp.geo_mean(u, [1, 2, 1]), u=[0.5, 1.0, 2.0])

    @classmethod
    def form(cls, walker, e, args):
        (u,), axis = args, atoms.axis_of(e)
        if axis is None:  # the weights belong to the entries in column order
            u = forms.take(u, u.positions.reshape(-1, order="F"))
        rows, weights = grouped(u, axis), atoms.geometric_weights(e)
        rows = forms.take(rows, rows.positions[:, weights > 0])
        rule_ = cls(weights=tuple(weights[weights > 0].tolist()))
        return walker.apply(rule_, [rows], rows.shape[:1], e).reshaped(e.shape)

    def forward(self, args):
        return np.prod(np.maximum(args[0], 0.0) ** self.weights, axis=-1), None

    def pullback(self, i, args, out, memo, g):
        relative = self.weights / args[0]  # derivatives of the logarithm
        return g[..., None] * np.where(np.isinf(relative), np.inf, out[..., None] * relative)

    def curve(self, i, args, out, memo, g, tangents):
        relative, t = self.weights / args[0], tangents[0]
        along = (relative * t).sum(axis=-1, keepdims=True)
        return (g * out)[..., None] * relative * (along - t / args[0])


@rule("product")
class ProductRule(Elementwise):
    """u · v of two expressions of the variables, which only predictions may hold."""

    value = staticmethod(np.multiply)
    example = at_point(cp.multiply, u=[1.0, -2.0], v=[0.5, 3.0])


@rule("reciprocal")
class Reciprocal(Elementwise):
    """1 / u of data or, in predictions, of the variables."""

    value = staticmethod(np.reciprocal)
    example = at_point(lambda u, v: u / v, u=[1.0, -2.0], v=[0.5, 3.0])
