"""The compiled loops and the same in NumPy: equal to rounding, and the package is whole without a compiler."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest

import strat
from strat.model.bound_model import BoundModel
from strat.oracles import kernels
from strat.oracles.design import SMALL, Segments, SharedDesign
from strat.problem.edges import AllPairs

ROOT = Path(__file__).resolve().parents[1]
compiled = pytest.mark.skipif(kernels.compiled is None, reason="nothing was compiled at installation")


def both(monkeypatch, compute):
    """What `compute` gives with the compiled loops, and without."""
    found = compute()
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "compiled", None)
        return found, compute()


@compiled
@pytest.mark.parametrize("p", [1, 2, 5, 16])
def test_rows_of_records(monkeypatch, p):
    rng, K = np.random.default_rng(p), 6
    z = np.sort(rng.choice([0, 1, 3, 5], size=40))  # strata 2 and 4 have no records
    x, theta, g = rng.standard_normal((40, p)), rng.standard_normal((K, p + 1)), rng.standard_normal((40, 1))
    columns = rng.permutation(p + 1)[:p][None]
    x.flags.writeable = theta.flags.writeable = False
    design = SharedDesign(x, columns, Segments(z, K), p + 1)
    for u in both(monkeypatch, lambda: design.matvec(theta)):
        np.testing.assert_allclose(u, (x * theta[z][:, columns[0]]).sum(axis=1)[:, None], atol=1e-14)
    sums = np.zeros((K, p + 1))
    np.add.at(sums, (z[:, None], columns), x * g)
    for found in both(monkeypatch, lambda: design.rmatvec(g)):
        np.testing.assert_allclose(found, sums, atol=1e-13)
    sums = [x[z == k].sum(axis=0) for k in range(K)]
    for found in both(monkeypatch, lambda: design.rmatvec(np.broadcast_to(1.0, (40, 1)))):
        np.testing.assert_allclose(found[:, columns[0]], sums, atol=1e-13)


@compiled
@pytest.mark.parametrize("p", [1, 3, 10, 24, 25])
def test_sums_of_outer_products(monkeypatch, p):
    rng, K = np.random.default_rng(p), 7
    z = np.sort(rng.choice([0, 1, 1, 1, 3, 5], size=61))  # strata 2, 4 and 6 have no records
    a, weight = rng.standard_normal((61, p)), rng.random(61)
    expected = np.stack([(a[z == k] * weight[z == k, None]).T @ a[z == k] for k in range(K)])
    for data in (a, np.asfortranarray(a)):
        for grams in both(monkeypatch, lambda d=data: Segments(z, K).gram(d, weight)):
            np.testing.assert_allclose(grams, expected, atol=1e-13)
    grams = Segments(z, K).gram(a, weight)
    if p <= SMALL:
        assert np.array_equal(grams, grams.swapaxes(1, 2))


def test_no_records_and_no_columns():
    for N, p in ((0, 3), (4, 0)):
        design = SharedDesign(np.zeros((N, p)), np.arange(p)[None], Segments(np.zeros(N), 2), p)
        assert np.array_equal(design.matvec(np.ones((2, p))), np.zeros((N, 1)))
        assert np.array_equal(design.rmatvec(np.ones((N, 1))), np.zeros((2, p)))


def logistic(K, records=120):
    rng = np.random.default_rng(K)
    theta, x, y = cp.Variable(3), cp.Parameter(3), cp.Parameter()
    base = strat.BaseModel(cp.logistic(-y * (x @ theta)), 0.1 * cp.norm1(theta), data=(x, y))
    X, z = rng.standard_normal((records, 3)), np.sort(rng.integers(K, size=records))
    Y = np.where(rng.random(records) < 1 / (1 + np.exp(-X @ [1.0, -1.0, 0.5])), 1.0, -1.0)
    model = strat.StratifiedModel(base, nx.empty_graph(K), strat.LogDet(5.0, 0.3, 0.1, 0.2))
    return BoundModel(model, (X, Y), z).problem()


@compiled
@pytest.mark.parametrize("K", [1, 2, 5, 8])
@pytest.mark.parametrize("n", [1, 3])
def test_all_pairs(monkeypatch, K, n):
    rng, edges = np.random.default_rng(K), AllPairs(K)
    w, a, theta = rng.random(edges.count), rng.random(K), rng.standard_normal((K, n))

    def computed():
        return edges.distances(theta), edges.add_ends(a, w.copy()), edges.add_ends(a, w.copy(), theta)

    i, j = edges.ends
    distances, ends = ((theta[i] - theta[j]) ** 2).sum(axis=1), w + a[i] + a[j]
    for found in both(monkeypatch, computed):
        for x, y in zip(found, (distances, ends, ends + distances), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)


@compiled
@pytest.mark.parametrize("K", [2, 9, 12])
def test_the_iterates_are_the_same(monkeypatch, K):
    def run():
        problem = logistic(K)
        algorithm = strat.MAPG()._algorithm(problem, np.zeros((K, 3)), problem.w0)
        metric, objectives = algorithm.edge_metric, []
        for _ in range(6):
            algorithm.step()
            objectives.append(algorithm.x.objective)
        measures = [metric.square, metric.slope, metric.size, metric.uphill]
        return np.array(objectives), algorithm.x.theta, algorithm.x.w, np.array(measures)

    for found, expected in zip(*both(monkeypatch, run), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_what_cannot_be_loaded_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "strat.oracles._loops", None)
    spec = find_spec("strat.oracles.kernels")
    afresh = module_from_spec(spec)
    spec.loader.exec_module(afresh)
    assert afresh.compiled is None


def build(tmp_path, **variables):
    """Build the package's extension from a copy of its sources; return the libraries that came out."""
    (tmp_path / "strat" / "oracles").mkdir(parents=True)
    sources = [ROOT / name for name in ("setup.py", "setup.cfg", "README.md")]
    for path in (*sources, *ROOT.glob("strat/oracles/*.c")):
        shutil.copy(path, tmp_path / path.relative_to(ROOT))
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "out", "--build-temp", "tmp"]
    environment = {**os.environ, **variables}
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, env=environment, timeout=120)
    return list(tmp_path.glob("out/strat/oracles/_loops*"))


def test_installation_needs_no_compiler(tmp_path):
    assert not build(tmp_path, CC="false", LDSHARED="false", CXX="false")


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_gcc_builds_what_is_loaded(tmp_path):
    (library,) = build(tmp_path, CC="gcc", CFLAGS="-Wall -Wextra -Werror -pedantic")
    specification = spec_from_file_location("_loops", library)
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    built = kernels.Compiled(module)
    x, stratum = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, 0], dtype=np.intp)
    assert np.array_equal(built.rows_times(x, stratum, np.array([[1.0, 0.0], [1.0, 1.0]])), [3.0, 3.0])
