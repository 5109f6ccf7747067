"""Functions that CVXPY approximates by other atoms; here they are exact.

CVXPY writes ``loggamma`` as a maximum of lines and logarithms, and ``log_normcdf`` as a sum of squares. These expressions are
recognised, so that a fit has the function that was meant. Cone programs cannot hold the exact functions.
"""

import cvxpy as cp
import numpy as np
from scipy.special import digamma, gammaln, log_ndtr, polygamma

from strat.errors import NoOracleError
from strat.rules import atoms
from strat.rules.base import Scalar


class LogGamma(Scalar):
    """log Γ(u), inf at 0."""

    function = "cp.loggamma"
    intervals = {0: (0.0, np.inf)}
    value = staticmethod(lambda u: np.where(u > 0, gammaln(np.maximum(u, 0.0)), np.inf))
    slopes = (lambda u, out: digamma(u), lambda u, out: polygamma(1, u))


class LogNormalCdf(Scalar):
    """log Φ(u), Φ the distribution function of a standard normal variable."""

    function, value = "cp.log_normcdf", staticmethod(log_ndtr)
    slopes = (lambda u, out: _hazard(u), lambda u, out: -_hazard(u) * (u + _hazard(u)))


def _hazard(u):
    """φ(u)/Φ(u), φ the density."""
    return np.exp(-0.5 * u**2 - log_ndtr(u)) / np.sqrt(2.0 * np.pi)


def meant(e):
    """(rule, argument) of the function that an expression approximates, or None."""
    if isinstance(e, atoms.maximum) and len(e.args) == 10:
        candidates = [a.args[0] for a in atoms.nodes(e.args[8]) if isinstance(a, atoms.log)]
        return _written(e, candidates, LogGamma, cp.loggamma)
    if isinstance(e, atoms.reshape) and isinstance(e.args[0], atoms.NegExpression):
        candidates = [a.args[0] for a in atoms.nodes(e.args[0]) if isinstance(a, atoms.reshape)]
        return _written(e, candidates, LogNormalCdf, cp.log_normcdf)
    return None


def _written(e, candidates, rule, function):
    """(rule, u) for the candidate u at which CVXPY writes the function as e; None if there is none."""
    return next(((rule, u) for u in candidates if u.shape == e.shape and str(function(u)) == str(e)), None)


def approximations(*expressions):
    """Names of the functions in expressions that CVXPY approximates."""
    found = (meant(e) for e in atoms.nodes(*expressions))
    return sorted({rule.function for rule, _ in filter(None, found)})


def refuse_approximations(*expressions):
    """Raise NoOracleError where a cone program would hold an approximation."""
    if names := approximations(*expressions):
        raise NoOracleError(
            f"CVXPY writes {' and '.join(names)} as an approximation of other atoms, so that there is no cone program of it. "
            f"Fit it with strat.NewtonCG() or strat.MAPG(), which have the exact function."
        )
