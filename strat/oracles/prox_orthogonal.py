"""The prox of functions of orthogonal rows, f(A z + b) with A Aᵀ diagonal: theirs, carried over by the rows."""

import numpy as np

from strat.errors import NoOracleError
from strat.oracles.prox_base import folded, present


class OrthogonalRows:
    """argmin_z f(A z + b) + qᵀz + ½ Q ‖z‖² + ‖z − v‖²/(2t) (Beck 2017, First-order methods in optimization, §6.3).

    Parameters
    ----------
    columns : (n,) int ndarray
        The coordinates that it acts on.
    term : RowTerm
        A, b and f, on strata, with the norms of the rows.
    q : (K or 1, n) ndarray
    Q : float
    """

    kind = "closed form"

    def __init__(self, columns, term, q, Q):
        self.columns, self.term, self.q, self.Q = columns, term, present(q), present(np.reshape(Q, (1, 1)))

    def __call__(self, v, t):
        v, t = folded(v, np.reshape(np.asarray(t, dtype=float), (-1, 1)), self.q, self.Q)
        term, t = self.term, np.broadcast_to(t, (len(v), 1))
        u, scale = term.design.matvec(v) + term.offset, term.norms**2
        s = term.functions.point(u, t * scale)
        if not np.isfinite(s).all():
            lost = int((~np.isfinite(s)).any(axis=1).sum())
            raise NoOracleError(
                f"the prox was not found in {lost} strata. Check that the data have a reasonable scale."
            )
        return v + term.design.rmatvec((s - u) / scale)


def orthogonal(term):
    """Whether a term's rows are, with one norm for all rows that its functions treat together."""
    matrix = term.design.dense_matrix()
    norms = np.broadcast_to(term.norms, (1, len(matrix)))[0]
    product = matrix @ matrix.T
    return np.allclose(product, np.diag(norms**2), rtol=0.0, atol=1e-14 * np.max(norms) ** 2)
