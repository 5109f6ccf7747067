"""The one place that knows CVXPY's classes and how to read them.

Classes are matched with ``isinstance`` on their base, never by name, because CVXPY renames the derived
ones between releases. Whatever is not public in CVXPY is read here and nowhere else.
"""

# ruff: noqa: F401 (other modules take the classes from here)

import numpy as np
from cvxpy import PSD, Constant, Constraint, Expression, FiniteSet, NonNeg, NonPos, Parameter, Variable, Zero
from cvxpy import atoms as public
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression
from cvxpy.atoms.affine.unary_operators import NegExpression
from cvxpy.atoms.affine.wraps import nonneg_wrap, nonpos_wrap
from cvxpy.atoms.elementwise.elementwise import Elementwise
from cvxpy.constraints.nonpos import Inequality
from cvxpy.constraints.zero import Equality
from cvxpy.problems.problem import Minimize, Problem
from numpy.lib.array_utils import normalize_axis_tuple
from scipy.sparse import issparse

try:
    from cvxpy.constraints import SOC, ExpCone, PowCone3D, SvecPSD
    from cvxpy.reductions.cone2cone.exact import ExactCone2Cone
    from cvxpy.reductions.cvx_attr2constr import convex_attributes
    from cvxpy.reductions.dcp2cone.cone_matrix_stuffing import ConeMatrixStuffing
    from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
    from cvxpy.settings import COO_CANON_BACKEND, DPP_PARAM_THRESHOLD
    from cvxpy.utilities.psd_utils import TriangleKind
    from cvxpy.utilities.solver_context import SolverInfo
except ImportError:  # a release to come
    Dcp2Cone = None


def __getattr__(name):
    """Every other class is a public atom of CVXPY, and needs no line here to get a rule."""
    return getattr(public, name)


def nodes(*expressions, enter=None):
    """Every sub-expression once, outer ones first; `enter` tells of which the arguments are read, by default of all."""
    stack, seen = [*reversed(expressions)], set()
    while stack:
        e = stack.pop()
        if id(e) not in seen:
            seen.add(id(e))
            yield e
            if enter is None or enter(e):
                stack.extend(reversed(e.args))


def axis_of(atom):
    """Axis over which a reduction works: None for all, else a tuple of non-negative ints."""
    axis = getattr(atom, "axis", None)
    return None if axis is None else normalize_axis_tuple(axis, atom.args[0].ndim)


def exponent(atom):
    """Exponent of a power or the order of a p-norm as a float, or None while a Parameter has no value."""
    p = atom.p.value if isinstance(atom.p, Expression) else atom.p
    return None if p is None else float(p)


def geometric_weights(atom):
    """Exponents of a weighted geometric mean, one for each entry it reduces; they sum to 1."""
    weights = np.zeros(len(atom._keep))
    weights[atom._keep] = np.array(atom.w, dtype=float)
    return weights


def cone_program(objective, constraints, variables, held):
    """CVXPY's cone program of a convex problem: min ½ xᵀ P x + qᵀ x + r, subject to A x + b in cones that Clarabel takes.

    Returns P (or None), (q, r) and (A, b), a row for each entry in Fortran order and a column for each entry of the Parameters
    and for 1, the first places in x by the variables' CVXPY id, the Parameters' first columns, the length of x, the rows of A
    cone by cone, and the (kind, size or exponent) of each cone. The variables' attributes are among the constraints;
    ``held(v, v)`` gives those of CVXPY's own unknowns. Raises ImportError where the parts of CVXPY are not there, which take
    half of the time of ``Problem.get_problem_data``.
    """
    ends = (end for v in variables for end in v.attributes["bounds"] or ())
    if Dcp2Cone is None or any(map(issparse, ends)):
        raise ImportError("this release of CVXPY has other parts, or none for sparse bounds")
    cones = {Zero: "zero", NonNeg: "nonnegative", SOC: "second order", SvecPSD: "psd"}
    cones |= {ExpCone: "exponential", PowCone3D: "power"}
    clarabel = SolverInfo("CLARABEL", frozenset(cones), False, TriangleKind.UPPER, psd_sqrt2_scaling=True)
    given, known = (
        {v.id for e in some for v in e.variables()} for some in (variables, (objective, *constraints))
    )
    objective = sum((0 * public.sum(v) for v in variables if v.id not in known), objective)
    to_cones = Dcp2Cone(quad_obj=objective.has_quadratic_term(), solver_context=clarabel)
    problem, _ = to_cones.apply(Problem(Minimize(objective), constraints))
    own = [v for v in problem.variables() if v.id not in given and convex_attributes([v])]
    parts = [*problem.constraints, *(c for v in own for c in held(v, v))]
    problem = Problem(problem.objective, [c for c in parts if c.size])
    others = ExactCone2Cone.CANON_METHODS.keys() - {SOC}
    if others & set(map(type, problem.constraints)):
        problem, _ = ExactCone2Cone(target_cones=others, solver_context=clarabel).apply(problem)
    many = sum(p.size for p in problem.parameters()) > DPP_PARAM_THRESHOLD
    matrices = ConeMatrixStuffing(to_cones.quad_obj, COO_CANON_BACKEND if many else None)
    written, data = matrices.apply(problem)
    order, kinds = np.zeros(0, dtype=int), []
    for c in written.constraints:
        order = np.append(order, len(order) + _cone_by_cone(c))
        numbers = [c.size] if isinstance(c, (Zero, NonNeg)) else c.cone_sizes()
        numbers = c.alpha.value.ravel("F") if isinstance(c, PowCone3D) else numbers
        kinds += [(cones[type(c)], number) for number in numbers]
    return written.P, written.q, written.A, data.var_offsets, data.param_id_map, data.x_length, order, kinds


def _cone_by_cone(constraint):
    """Places of the entries of a constraint's arguments, each in Fortran order, one cone after the other."""
    places = np.arange(constraint.size)
    if isinstance(constraint, SOC):
        first, others = np.split(places, [constraint.num_cones()])
        return np.column_stack([first, others.reshape(len(first), -1)]).ravel()
    return places.reshape(len(constraint.args), -1).T.ravel()
