"""MAPG: the paper's iterates, optima against CVXPY, the stops, checkpoints."""

import logging
import warnings

import cvxpy as cp
import handmade
import numpy as np
import pytest
from handmade import Bernoulli, Box, LeastSquares, Logistic, Norm1, Ridge, Zero
from sklearn.base import clone

import strat
from strat.errors import ConvergenceWarning, NoOracleError, OptionError
from strat.problem.edges import AllPairs, EdgeList
from strat.problem.graph_regularizers import FixedGraph, LogDet, LogDiagonal
from strat.problem.joint_problem import JointProblem, Point
from strat.records.strata import Strata
from strat.solvers import MAPG
from strat.solvers.graph_step import graph_step
from strat.solvers.joint_steps import extrapolated

H = LogDet(0.5, 0.2, 0.1, 0.2)


def data(K=8, p=3, N=60, seed=0):
    rng = np.random.default_rng(seed)
    stratum = rng.integers(max(K - 1, 1), size=N)  # the last of several strata has no record
    X, signs = rng.standard_normal((N, p)), rng.choice([-1.0, 1.0], size=N)
    return X, signs, stratum


def problem(h=H, regularizer=None, edges=None, K=8, loss=Logistic, couple=None):
    X, y, stratum = data(K)
    edges = AllPairs(K) if edges is None else edges
    w0 = edges.from_vector(np.random.default_rng(1).random(edges.count))
    return JointProblem(loss(X, y, stratum, K), regularizer or Norm1(0.2), h, edges, w0, couple)


def solve(p, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MAPG(**options).run(p, p.prox(np.zeros((p.K, p.n)), 1.0), p.w0)


def is_monotone(result):
    return np.all(np.diff(result.history) <= 0)


# ----------------------------------------------------------------- the paper


@pytest.mark.parametrize(("iteration", "objective"), [(114, -558.829460), (215, -889.541757)])
def test_the_papers_iterates_on_wine(iteration, objective):
    result = solve(handmade.wine(), step=(1e-3, 1e-4), tol=0, max_iter=iteration)
    assert result.objective == pytest.approx(objective, rel=1e-6)
    assert result.iterations == iteration
    assert result.status == "max_iter"


def test_default_on_wine():
    result = solve(handmade.wine())
    assert result.status == "converged"
    assert max(result.residual.values()) <= 1e-6
    assert result.objective <= -1976
    assert result.factorizations <= 150
    assert is_monotone(result)
    assert result.history[-1] == pytest.approx(result.objective, rel=1e-9)


@pytest.mark.slow
def test_election():
    p = handmade.election()
    result = solve(p)
    assert result.status == "converged"
    assert max(result.residual.values()) <= 1e-6
    assert result.objective <= -190.5915
    assert is_monotone(result)
    paper = solve(p, step=(1e-3, 5e-5), tol=0, max_iter=940)
    assert paper.objective == pytest.approx(-190.379369, rel=1e-6)


# ----------------------------------------------------------------- optima


@pytest.mark.parametrize("couple", [None, np.array([1.0, 0.0, 3.0])])
@pytest.mark.parametrize("loss", [Logistic, LeastSquares])
@pytest.mark.parametrize("regularizer", [Norm1(0.5), Ridge(0.5), Box(-0.3, 0.2)])
def test_fixed_graph_against_one_cvxpy_solve(regularizer, loss, couple):
    p = problem(FixedGraph(), regularizer, EdgeList(8, range(7), range(1, 8)), loss=loss, couple=couple)
    result = solve(p, tol=1e-8)
    X, y, stratum = data()
    theta, c = cp.Variable((8, 3)), np.ones(3) if couple is None else couple
    u = cp.sum(cp.multiply(X, theta[stratum]), axis=1)
    total = cp.sum(cp.logistic(-cp.multiply(y, u))) if loss is Logistic else 0.5 * cp.sum_squares(u - y)
    for (i, j), w in zip(zip(*p.edges.ends, strict=True), p.w0, strict=True):
        total += w / 2 * c @ cp.square(theta[i] - theta[j])
    constraints = []
    if isinstance(regularizer, Norm1):
        total += 0.5 * cp.norm1(theta)
    elif isinstance(regularizer, Ridge):
        total += 0.25 * cp.sum_squares(theta)
    else:
        constraints = [theta >= -0.3, theta <= 0.2]
    best = cp.Problem(cp.Minimize(total), constraints).solve(solver=cp.CLARABEL)
    assert result.status == "converged"
    assert result.objective == pytest.approx(best, rel=1e-7)
    assert is_monotone(result)
    assert result.w is not p.w0
    assert np.array_equal(result.w, p.w0)


@pytest.mark.parametrize(
    "h", [H, LogDet(0.5, 0.0, 0.1, 0.2), LogDet(0.5, 0.2, 1.0, 0.2), LogDet(0.0, 0.2, 0.5, 1.0)]
)
@pytest.mark.parametrize("edges", [AllPairs(5), EdgeList(5, [0, 1, 2, 3, 0], [1, 2, 3, 4, 4])])
def test_graph_step_against_cvxpy(edges, h):
    theta = np.random.default_rng(3).standard_normal((5, 3))
    w0 = edges.from_vector(np.linspace(0, 1, edges.count))
    p = JointProblem(LeastSquares(*data(5), 5), Zero(), h, edges, w0)
    result = graph_step(p, theta, tol=1e-9)
    W = cp.Variable((5, 5), symmetric=True)
    i, j = edges.ends
    d = ((theta[i] - theta[j]) ** 2).sum(axis=1)
    absent = np.ones((5, 5))
    absent[i, j] = absent[j, i] = 0
    objective = h.expression(W, edges.to_matrix(w0)) + 0.5 * cp.sum(cp.multiply(d, W[i, j]))
    best = cp.Problem(cp.Minimize(objective), [*h.constraints(W), cp.multiply(absent, W) == 0]).solve(
        cp.CLARABEL
    )
    assert result.status == "converged"
    assert result.objective == pytest.approx(best, rel=1e-6)
    assert np.array_equal(result.theta, theta)


@pytest.mark.parametrize("regularizer", [Norm1(0.2), Ridge(0.1), Zero(), Box(-0.5, 0.5)])
def test_joint_fit_is_stationary_and_monotone(regularizer):
    result = solve(problem(regularizer=regularizer))
    assert result.status == "converged"
    assert max(result.residual.values()) <= 1e-6
    assert is_monotone(result)
    assert result.objective == pytest.approx(result.history[-1], rel=1e-12)
    assert result.objective == pytest.approx(sum(result.parts.values()))


def test_both_edge_sets_give_the_same_iterates():
    a = problem()
    b = problem(edges=EdgeList(8, *np.triu_indices(8, 1)))
    b.w0 = a.edges.vector(a.w0)
    for options in ({"max_iter": 5}, {"max_iter": 20, "step": (1e-2, 1e-2)}):
        x, y = solve(a, tol=0, **options), solve(b, tol=0, **options)
        np.testing.assert_allclose(x.history, y.history, rtol=1e-10)
        np.testing.assert_allclose(x.theta, y.theta, atol=1e-8)


@pytest.mark.parametrize("K", [1, 2, 3])
@pytest.mark.parametrize("h", [H, FixedGraph()])
def test_few_strata(K, h):
    assert solve(problem(h, K=K)).status == "converged"


def test_no_edges():
    p = problem(edges=EdgeList(8, [], []), regularizer=Ridge(0.1))
    assert solve(p).status == "converged"


def test_a_loss_with_a_pole_and_without_second_derivatives():
    y = np.random.default_rng(0).integers(2, size=12).astype(float)
    loss = Bernoulli(y, np.repeat(np.arange(4), 3), 5)
    edges = AllPairs(5)
    for has in (loss.has, lambda name: name in ("value", "value_and_gradient")):
        loss.has = has
        result = solve(
            JointProblem(loss, Box(1e-5, 1 - 1e-5), LogDet(0.2, 1.0, 0.1, 0.1), edges, edges.zeros())
        )
        assert result.status == "converged"
        assert is_monotone(result)


@pytest.mark.parametrize("h", [H, FixedGraph()])
def test_a_tolerance_below_what_the_objective_resolves(h):
    result = solve(problem(h), tol=1e-10)
    assert result.status == "converged"
    assert max(result.residual.values()) <= 1e-10
    assert is_monotone(result)


@pytest.mark.parametrize("h", [H, LogDiagonal(1.0, 0.2)])
def test_rounding_beyond_its_estimate_does_not_shorten_the_steps(monkeypatch, h):
    estimate = Point.noise.fget
    monkeypatch.setattr(Point, "noise", property(lambda point: 0.01 * estimate(point)))
    p = problem(h)
    algorithm = MAPG(tol=1e-30)._algorithm(p, np.zeros((p.K, p.n)), p.w0)
    for _ in range(300):
        algorithm.step()
    assert algorithm.edge_metric.length > 1e-3
    assert max(algorithm.differentiate_x().residual().values()) <= 1e-7


def test_deterministic():
    a, b = solve(problem()), solve(problem())
    assert a.history == b.history
    assert np.array_equal(a.theta, b.theta)


# ------------------------------------------------------------ fixed steps


def test_fixed_steps_project_an_extrapolation_that_leaves_the_domain(monkeypatch):
    outside = []

    def evaluate_smooth(point, gradient=False):
        value = original(point, gradient)
        outside.append(value == np.inf and point.w.min() < 0)
        return value

    original = Point.evaluate_smooth
    monkeypatch.setattr(Point, "evaluate_smooth", evaluate_smooth)
    result = solve(problem(LogDet(5.0, 0.01, 0.1, 0.01)), step=(0.5, 2.0), tol=0, max_iter=30)
    assert any(outside)
    assert np.all(np.isfinite(result.history))
    assert np.max(np.diff(result.history)) > 0  # verbatim Algorithm 1 is not monotone for long steps
    assert result.w.min() >= 0


# ------------------------------------------------------------ the stops


def test_max_iter_warns_and_says_the_way_out():
    p = problem()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 is reached.*raise max_iter"):
        result = MAPG(max_iter=2).run(p, np.zeros((p.K, p.n)), p.w0)
    assert result.status == "max_iter"
    assert len(result.history) == 3
    with pytest.warns(ConvergenceWarning):
        start = MAPG(max_iter=0).run(p, np.zeros((p.K, p.n)), p.w0)
    assert start.iterations == 0
    assert not start.theta.any()


def test_time_limit():
    assert solve(problem(), tol=0, time_limit=0).status == "time_limit"


def test_callback_sees_iterates_and_stops():
    seen = []
    result = solve(problem(), tol=0, callback=lambda s: seen.append(s.objective) or len(seen) == 4)
    assert result.status == "interrupted"
    assert seen == result.history[1:]


@pytest.mark.parametrize("step", [None, (1e-2, 1e-2)])
def test_keyboard_interrupt_returns_the_best_iterate(step):
    def stop(state):
        if state.iteration == 6:
            raise KeyboardInterrupt

    result = solve(problem(), tol=0, step=step, callback=stop)
    assert result.status == "interrupted"
    assert result.objective == pytest.approx(min(result.history), rel=1e-12)


def test_keyboard_interrupt_within_an_iteration_leaves_a_whole_point():
    p, calls = problem(), 0
    value = p.loss.value

    def interrupted(theta):
        nonlocal calls
        calls += 1
        if calls == 17:
            raise KeyboardInterrupt
        return value(theta)

    p.loss.value = interrupted
    result = solve(p, tol=0)
    assert result.status == "interrupted"
    assert result.objective == pytest.approx(result.history[-1], rel=1e-12)


def test_patience_returns_the_best_validated_iterate():
    p, scores = problem(), []

    def score(theta):
        scores.append(float(np.abs(theta).sum() - 1) ** 2)
        return scores[-1]

    result = MAPG(patience=3, tol=0).run(p, np.zeros((p.K, p.n)), p.w0, score=score)
    assert result.status == "early_stopped"
    assert (np.abs(result.theta).sum() - 1) ** 2 == min(scores)
    assert len(scores) == np.argmin(scores) + 4
    with pytest.raises(OptionError, match="patience watches the validation loss"):
        MAPG(patience=3).run(p, np.zeros((p.K, p.n)), p.w0)


def test_progress_goes_through_logging(caplog):
    with caplog.at_level(logging.INFO, "strat"):
        solve(problem(), verbose=True)
    assert "MAPG iteration" in caplog.text
    assert "residual" in caplog.text


# ------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("step", [None, (1e-2, 1e-2)])
@pytest.mark.parametrize("h", [H, FixedGraph()])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, step, h):
    path, p = tmp_path / "state.npz", problem(h)
    whole = solve(p, tol=0, max_iter=12, step=step)
    solve(p, tol=0, max_iter=5, step=step, checkpoint=path)
    resumed = solve(p, tol=0, max_iter=12, step=step, checkpoint=path)
    assert resumed.history == whole.history
    assert np.array_equal(resumed.theta, whole.theta)
    assert np.array_equal(resumed.w, whole.w)
    assert resumed.factorizations == whole.factorizations


def test_a_checkpoint_of_another_fit_is_refused(tmp_path):
    path, p = tmp_path / "state.npz", problem()
    solve(p, max_iter=3, checkpoint=path)
    with pytest.raises(OptionError, match="holds no state of this fit"):
        MAPG(checkpoint=path).run(p, np.zeros((p.K, p.n)), p.w0, fingerprint="another")
    for content in (
        b"something else",
        b"",
        path.read_bytes()[:999],
    ):  # no archive, nothing, the beginning of one
        path.write_bytes(content)
        with pytest.raises(OptionError, match="holds no state of this fit"):
            solve(p, checkpoint=path)
    with pytest.raises(OptionError, match="checkpoint = 3 is no path"):
        solve(p, checkpoint=3)


def test_a_finished_fit_removes_its_checkpoint(tmp_path):
    assert solve(problem(), checkpoint=tmp_path / "state.npz").status == "converged"
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------ options and needs


@pytest.mark.parametrize(
    ("options", "text"),
    [  # those of all solvers, and MAPG's own
        ({"tol": -1}, "tol = -1 is out of range: it must be a number of at least 0"),
        ({"max_iter": 1.5}, "max_iter = 1.5 is out of range"),
        ({"patience": 0}, "patience = 0"),
        ({"time_limit": "long"}, "time_limit = 'long'"),
        ({"callback": 3}, "callback = 3"),
        ({"step": 0.1}, r"step = 0.1 is out of range: it must be two numbers \(alpha_x, alpha_y\) above 0"),
        ({"step": (1, 0)}, "step"),
    ],
)
def test_options_out_of_range(options, text):
    with pytest.raises(OptionError, match=text):
        solve(problem(), **options)


def test_missing_oracles_are_named():
    p = problem()
    p.loss.has = lambda name: name == "prox"
    with pytest.raises(NoOracleError, match="MAPG needs the gradient of the loss.*\n.*smoothing"):
        solve(p)
    p = problem()
    p.regularizer.has = lambda name: False
    with pytest.raises(NoOracleError, match="MAPG needs the prox of the regularizer"):
        solve(p)


def test_a_start_outside_the_domain_is_an_error():
    p = JointProblem(Bernoulli(np.ones(3), np.arange(3), 3), Zero(), FixedGraph(), AllPairs(3), np.zeros(6))
    with pytest.raises(OptionError, match=r"init: the loss of stratum number 0 \(3 in all\) is not finite"):
        MAPG().run(p, np.zeros((3, 1)), p.w0)


def test_parameters_and_printing():
    solver = clone(MAPG(step=(1e-3, 1e-4), tol=1e-4))
    assert solver.get_params()["step"] == (1e-3, 1e-4)
    text = str(solve(problem()))
    assert text.startswith("status      converged after")
    assert "residual    theta" in text


# ------------------------------------------------- affine images of theta


def softmax_oracles():
    X, signs, stratum = data()
    theta, x, y = cp.Variable((3, 2), name="theta"), cp.Parameter(3, name="x"), cp.Parameter(2, name="y")
    loss = cp.log_sum_exp(x @ theta + np.array([0.5, 0.0])) - (x @ theta) @ y
    base = strat.BaseModel(loss, 0.1 * cp.norm1(theta), data=(x, y))
    records = [X, np.eye(2)[(signs > 0).astype(int)]]
    strata = Strata(list(range(8)), stratum)
    loss = base.loss_program.bind_records(records, strata, np.ones(len(X)))
    return loss, base.regularizer_program.bind_regularizer()


def test_losses_take_their_affine_imagesextrapolated():
    oracle, _ = softmax_oracles()
    new, old = np.random.default_rng(5).standard_normal((2, 8, oracle.n))
    u = extrapolated(oracle.arguments(new), oracle.arguments(old), 0.7)
    assert any(part is not None for part in u)
    theta = new + 0.7 * (new - old)
    np.testing.assert_allclose(oracle.value(theta, u), oracle.value(theta), rtol=1e-12)
    for found, right in zip(
        oracle.value_and_gradient(theta, u), oracle.value_and_gradient(theta), strict=True
    ):
        np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-12)


def test_extrapolated_images_change_no_iterate():
    edges = AllPairs(8)
    p = JointProblem(*softmax_oracles(), H, edges, edges.zeros())
    with_images = solve(p, tol=0, max_iter=15)
    p._arguments = None
    without = solve(p, tol=0, max_iter=15)
    np.testing.assert_allclose(with_images.history, without.history, rtol=1e-9)
    np.testing.assert_allclose(with_images.theta, without.theta, atol=1e-5)
