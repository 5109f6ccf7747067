"""A fit solved and differentiated by CVXPY itself (diffcp): slow, and independent of everything else here."""

import cvxpy as cp
import numpy as np

from strat.compiler import coupling
from strat.errors import OptionError
from strat.graphs.reading import read_graph
from strat.model.export import fitted_couple, stratum_terms

ACCURATE = 1e-9  # tolerances of the cone solver SCS; its defaults leave errors of 1e-5


class DifferentiatedProblem:
    """A model's convex problem with edge weights and hyperparameters as Parameters.

    Parameters
    ----------
    model : StratifiedModel
        Fitted.
    names : sequence of str
        Hyperparameters to differentiate in.

    Attributes
    ----------
    problem : cvxpy.Problem
    """

    def __init__(self, model, names=()):
        base, records = model.base, model._training
        self.model = model
        self.kept = {}
        for name in names:
            p = base.hyperparameters[name]
            self.kept[name] = cp.Parameter(p.shape, name=name, **_sign(p))
            self.kept[name].value = np.asarray(model.values.get(name, p.value), dtype=float)
        self.i, self.j, self.weights = _edges(model)
        self.w = [cp.Parameter(nonneg=True, value=w) for w in self.weights]
        terms, constraints, self.copies = [], [], []
        for k in range(records.strata.K):
            variables, objective, own = stratum_terms(base, records, model.values, k, kept=self.kept)
            self.copies.append(variables)
            terms.append(objective)
            constraints += own
        couple = np.sqrt(fitted_couple(model, self.i, self.j))
        couple = np.broadcast_to(couple, (len(self.i), base.layout.n))
        for e, (i, j) in enumerate(zip(self.i, self.j, strict=True)):
            parts = [
                cp.vec(self._difference(v, couple[e], i, j), order="C") for v in base.loss_program.variables
            ]
            terms.append(0.5 * self.w[e] * cp.sum_squares(cp.hstack(parts)))
        self.problem = cp.Problem(cp.Minimize(cp.sum(cp.hstack(terms))), constraints)

    def _difference(self, v, couple, i, j):
        p = couple[self.model.base.layout.slices[v.name()]].reshape(v.shape)
        return cp.multiply(p, self.copies[i][v.name()] - self.copies[j][v.name()])

    def solve(self, **options):
        """Solve; return theta (K, n)."""
        self.problem.solve(requires_grad=True, **options)
        layout = self.model.base.layout
        names = [v.name() for v in self.model.base.loss_program.variables]
        return layout.pack({name: np.array([c[name].value for c in self.copies]) for name in names})

    def backward(self, b):
        """Derivatives of ⟨b, theta⟩: in the edges (E,), and in the hyperparameters by name."""
        for k, variables in enumerate(self.copies):
            for name, value in self.model.base.layout.unpack(b[[k]]).items():
                variables[name].gradient = value[0]
        self.problem.backward()
        parameters = {name: np.asarray(p.gradient) for name, p in self.kept.items()}
        return np.array([w.gradient for w in self.w], dtype=float), parameters


def through_cvxpy(fitted, held, names):
    """Held-out loss and its derivatives by CVXPY and diffcp: in theta's problem alone, as `hypergradient` needs them.

    Returns
    -------
    loss : float
    edges : (i, j, derivatives)
        Of the model's own edges.
    parameters : dict
        Derivatives by name of hyperparameter, without the direct dependence of the held-out loss.
    theta : (K, n) ndarray
    """
    try:
        import diffcp  # noqa: F401
    except ImportError as error:
        raise OptionError('method="cvxpy" needs diffcp: pip install "strat[diffcp]".') from error
    names = [name for name in names if name not in ("W0", "scale")]
    _check(fitted.model.base, names)
    found = DifferentiatedProblem(fitted.model, names)
    if not found.problem.is_dcp(dpp=True):
        raise OptionError(
            'method="cvxpy": the problem is not DPP in the Parameters of wrt, so that CVXPY cannot differentiate it. '
            'Use method="implicit".'
        )
    theta = found.solve(eps_abs=ACCURATE, eps_rel=ACCURATE)
    loss, b = held.mean_loss_and_gradient(theta)
    edges, parameters = found.backward(b)
    return loss, (found.i, found.j, edges), parameters, theta


def _check(base, names):
    """Refuse what the problem does not hold."""
    if base.smoothing is not None:
        raise OptionError(
            'method="cvxpy" differentiates the loss as declared, not its smoothing=. Use method="implicit".'
        )
    found = {p.name() for p in coupling.parameters(base.couple)} & set(names)
    if found:
        raise OptionError(
            f'method="cvxpy": the Parameter {min(found)} multiplies edge weights (couple=), so that the problem is '
            f'not DPP. Use method="implicit".'
        )


def _edges(model):
    """Ends of a model's own edges, those of weight 0 included, and the weights of its W."""
    W = model.W_ if isinstance(model.W_, np.ndarray) else model.W_.toarray()
    mask = np.triu(W, 1) > 0
    if model.graph is not None:
        prior = read_graph(model.graph)
        mask[prior.i, prior.j] = True
    i, j = np.nonzero(mask)
    return i, j, W[i, j]


def _sign(parameter):
    return {name: True for name in ("nonneg", "nonpos", "pos", "neg") if parameter.attributes.get(name)}
