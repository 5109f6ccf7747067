"""Several terms of piecewise linear rows on strata as one: one product and one pass over the knots serve them all."""

import numpy as np
import scipy.sparse as sp

from strat.oracles.design import ConstantDesign
from strat.oracles.row_functions import PiecewiseRows
from strat.oracles.row_terms import RowTerm


def joined(terms):
    """The same terms, those of piecewise linear rows on strata as one.

    Parameters
    ----------
    terms : list of RowTerm

    Returns
    -------
    list of RowTerm
    """
    alike = [
        term
        for term in terms
        if term.segments is None
        and isinstance(term.functions, PiecewiseRows)
        and isinstance(term.design, ConstantDesign)
    ]
    if len(alike) < 2:
        return terms
    matrix = sp.coo_array(sp.vstack([sp.coo_array(term.design.dense_matrix()) for term in alike]))
    design = ConstantDesign(*matrix.coords, matrix.data, *matrix.shape)
    offset = _beside([term.offset for term in alike])
    functions = PiecewiseRows.beside([term.functions for term in alike])
    one = RowTerm(design, offset, functions, None, _beside([term.norms for term in alike]))
    return [one, *(term for term in terms if not any(term is other for other in alike))]


def _beside(parts):
    rows = max(len(part) for part in parts)
    return np.concatenate([np.broadcast_to(part, (rows, part.shape[1])) for part in parts], axis=1)
