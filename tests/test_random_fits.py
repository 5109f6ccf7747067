"""Random whole models: fitted as CVXPY fits them, printed, saved and loaded, stopped and resumed.

STRAT_RANDOM=2000 runs that many instead of 60; STRAT_SEED moves the start.
"""

import os

import cvxpy as cp
import numpy as np
import pytest
from random_expressions import Maker, assert_every

import strat

COUNT, FIRST = int(os.environ.get("STRAT_RANDOM", 60)), int(os.environ.get("STRAT_SEED", 0))
CHUNK = 5
GIVEN = strat.Cone, strat.NewtonCG, strat.MAPG, strat.ADMM
LEARNED = strat.MAPG, strat.AlternatingMinimization
GRAPH = strat.graphs.path(3, weight=0.7)


def declared(seed):
    """A random declaration with one solution, and its data."""
    made = Maker(seed, with_data=True)
    loss = made.expression()
    data, variables = made.data_of(loss), loss.variables()
    known = {v.id for v in variables}
    pull = sum(0.3 * cp.sum_squares(v - made.theta[v.name()][0]) for v in variables)
    made.with_data = False
    piece = made.expression() if made.rng.random() < 0.5 else 0
    pull += sum(0.1 * cp.sum_squares(v) for v in getattr(piece, "variables", list)() if v.id not in known)
    base = strat.BaseModel(loss, pull + 0.2 * piece, made.constraints(variables), data=data)
    return made, base, [made.arrays[p.name()] for p in data]


def optimum(model):
    """The objective's minimum by CVXPY; None where its solver fails or is not sure."""
    problem = model.to_cvxpy()
    try:
        problem.solve(cp.CLARABEL)
    except (cp.error.SolverError, NotImplementedError):
        return None
    return problem.value if problem.status == "optimal" else None


def check(seed, folder):
    """Fit one random model; True if it was compiled, False if it was refused."""
    try:
        made, base, arrays = declared(seed)
        assert str(base)
        model = strat.lrsm(base, GRAPH).fit(*arrays, strata=made.index)
    except strat.StratError as error:
        assert len(str(error)) > 40
        return False
    wanted = optimum(model)
    assert wanted is None or model.result_.objective == pytest.approx(wanted, rel=2e-5, abs=2e-5)
    folder.mkdir()
    model.save(folder / "model")
    loaded = strat.load(folder / "model", base=base)
    assert all(np.array_equal(loaded.theta_[name], value) for name, value in model.theta_.items())
    check_resumed(made, base, arrays, folder / "checkpoint")
    return True


def check_resumed(made, base, arrays, path):
    """A fit that is stopped and goes on ends where one that is not stopped does, to the last bit."""
    if made.rng.random() < 0.3:
        make, h = made.pick(LEARNED), strat.LogDet(0.5, 0.5, 0.2, 0.5)
    else:
        make, h = made.pick(GIVEN), strat.FixedGraph()

    def fitted(max_iter, checkpoint=None):
        solver = make(max_iter=max_iter, tol=0.0, checkpoint=checkpoint)
        return strat.StratifiedModel(base, GRAPH, h, solver=solver).fit(*arrays, strata=made.index)

    try:
        whole = fitted(5)
    except strat.StratError as error:
        assert len(str(error)) > 40
        return
    stopped = fitted(2, path)
    resumed = fitted(5, path)
    assert stopped.result_.iterations <= 2 and resumed.result_.iterations == whole.result_.iterations
    assert np.array_equal(resumed.result_.theta, whole.result_.theta)
    assert np.array_equal(resumed.result_.w, whole.result_.w)


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, CHUNK))
@pytest.mark.filterwarnings("ignore")
def test_random_models_are_fitted_as_by_cvxpy(first, tmp_path):
    assert_every(lambda seed: check(seed, tmp_path / str(seed)), first, CHUNK, 0.5)
