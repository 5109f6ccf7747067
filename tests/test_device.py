"""Records on a device: arrays of any library of the array API standard, and the numbers of NumPy."""

import pickle
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import strat
from strat.oracles.base import hessian_blocks
from strat.oracles.device import BlockLoss, Device
from strat.problem.edges import AllPairs
from strat.records import chunks
from strat.records.labels import read_labels
from strat.records.strata import Strata
from strat.rules import rules

K, N, P = 6, 400, 4
X_, Y_, E_ = cp.Parameter(P, name="x"), cp.Parameter(name="y"), cp.Parameter(nonneg=True, name="e")
DATA = (X_, Y_, E_)
THETA, B = cp.Variable((P, 2), name="theta"), cp.Variable(2, name="b")
Z = X_ @ THETA + B
LOSSES = {
    "least squares": cp.sum_squares(cp.hstack([Y_, E_]) - Z),
    "logistic": E_ * (3.0 + cp.sum(cp.logistic(-Y_ * Z))),
    "softmax": cp.log_sum_exp(cp.vstack([Z, Z[::-1]]), axis=1) @ [1.0, 0.5] + E_ * cp.square(Y_ - Z[0]),
    "squared hinge": E_ * cp.sum(cp.square(2 * cp.pos(1 - Y_ * Z))) + cp.square(cp.logistic(Y_ * Z[0])),
    "smoothed": E_ * strat.losses.pinball(Y_, Z[0], 0.9) + cp.pos(cp.abs(E_ - Z[1]) - 0.2),
    "poisson": strat.losses.poisson(E_, Z[0] + cp.log(1 + E_)) + E_ * cp.square(Y_ - Z[1]),
    "huber": cp.sum(cp.huber(cp.hstack([Y_, E_]) - Z, 0.5)) + 0.1 * cp.huber(B[0], 0.2),
}
LOGDET = strat.LogDet(lambda1=1.0, lambda2=0.1, eta=0.2, mu=0.5)


@pytest.fixture(params=["array_api_strict", "torch"])
def library(request):
    """Arrays of a library, on a device of it; that of array_api_strict cannot be read by NumPy."""
    xp = pytest.importorskip(request.param)
    pytest.importorskip("array_api_compat")
    device = xp.Device("device1") if request.param == "array_api_strict" else "cpu"
    return device, lambda array, dtype="float64": xp.asarray(array, dtype=getattr(xp, dtype), device=device)


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(N, P)), np.minimum(rng.geometric(0.4, N), K) - 1
    Y = np.sign(X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=N) + 0.3 * z)
    return (X, Y, rng.uniform(0.5, 2.0, N)), {"strata": z, "sample_weight": rng.integers(0, 3, N)}


def model_of(loss, kind="NewtonCG"):
    regularizer, smoothing = 0.3 * cp.norm1(THETA) + cp.sum_squares(B), {"smoothed": 0.1}.get(str(loss))
    base = strat.BaseModel(LOSSES.get(loss, loss), regularizer, data=DATA, smoothing=smoothing)
    graph = strat.graphs.path(K, weight=2.0)
    if kind == "joint":
        return strat.StratifiedModel(base, graph, LOGDET, solver=strat.MAPG(tol=1e-7))
    return strat.lrsm(base, graph, solver=getattr(strat, kind)(tol=1e-7))


@pytest.mark.parametrize("loss, kind", [*product(LOSSES, ["NewtonCG", "MAPG"]), ("poisson", "joint")])
def test_fits_are_those_of_numpy(loss, kind, library, records, monkeypatch):
    (device, array), (data, options) = library, records
    monkeypatch.setattr(strat.oracles.device, "LONGEST", 50)
    monkeypatch.setattr(strat.oracles.device, "PIECE", 2000)
    whole = model_of(loss, kind).fit(*data, **options)
    there = model_of(loss, kind).fit(*map(array, data), **options, device=device)
    assert abs(there.result_.objective / whole.result_.objective - 1) < 1e-10
    np.testing.assert_allclose(there.theta_["theta"], whole.theta_["theta"], atol=1e-5)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(there)).W_, whole.W_, atol=1e-4)


def test_matrices_of_records_stay_as_they_are(library, records, monkeypatch):
    (device, array), (data, options) = library, records
    monkeypatch.setattr(chunks, "SAMPLE", 50)
    moved, kept, from_dlpack, init = [], [], np.from_dlpack, BlockLoss.__init__
    monkeypatch.setattr(np, "from_dlpack", lambda a: moved.append(from_dlpack(a)) or moved[-1])
    monkeypatch.setattr(BlockLoss, "__init__", lambda self, *a: kept.append(a[5].dtype) or init(self, *a))
    narrow = [array(each, "float32") for each in data]
    model = model_of("huber").fit(*narrow, **options, device=device)
    assert max(each.size for each in moved) < N * P
    assert all(str(dtype).endswith("float32") for dtype in kept) and kept
    whole = model_of("huber").fit(*(each.astype(np.float32) for each in data), **options)
    assert abs(model.result_.objective / whole.result_.objective - 1) < 1e-7


def test_derivatives_are_those_of_numpy(library, records):
    (_, array), (data, options) = library, records
    here = strat.compile(LOSSES["huber"], data=DATA).bind(*data, strata=options["strata"])
    strata = Strata.read(read_labels(options["strata"]))
    there = here.program.bind_records([*map(array, data)], strata, np.ones(N), part=strata.order)
    theta, v = np.random.default_rng(1).normal(size=(2, K, there.n))
    for oracle in (
        lambda o: o.value_and_gradient(theta)[1],
        lambda o: o.hessian_operator(theta)(v),
        lambda o: hessian_blocks(o, theta),
    ):
        np.testing.assert_allclose(oracle(there), oracle(here.flat), rtol=1e-10, atol=1e-10)


def test_every_portable_rule_is_fitted():
    printed = " ".join(str(strat.compile(loss, data=DATA)) for loss in LOSSES.values())
    assert [name for name, rule in rules().items() if rule.portable and name not in printed] == []


def test_dense_inverses(library):
    device, array = library
    here, there, w = AllPairs(7), AllPairs(7), np.random.default_rng(0).random(21)
    there.device = Device(array(0.0))
    one, two = (edges.factor(w, edges.degrees(w) + 0.1) for edges in (here, there))
    assert two.log_det == pytest.approx(one.log_det, rel=1e-10)
    for found, expected in zip(two.inverse(), one.inverse(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8)
    with pytest.raises(np.linalg.LinAlgError):
        there.factor(w, -there.degrees(w))


def test_what_a_device_cannot_do_says_so(library, records):
    (device, array), ((X, Y, E), options) = library, records
    data = array(X), array(Y), array(E)
    fails = {
        (strat.NoOracleError, "device.*maximum.*not differentiable"): (E_ * cp.pos(1 - Y_ * Z[0]), data, {}),
        (strat.NoOracleError, "PowerRule, in .* of one affine"): (E_ * cp.power(Y_ * Z[0], 4), data, {}),
        (strat.DataError, "x is sparse"): ("logistic", (sp.csr_array(X), *data[1:]), {}),
        (strat.DataError, "x has NaN in column 0 of record 0"): ("logistic", (array(X + np.nan), Y, E), {}),
        (strat.DataError, "'y' is text.* frame"): ("logistic", (array(X), "y", E), {}),
        (strat.OptionError, "device='nowhere' cannot be used"): ("logistic", data, {"device": "nowhere"}),
        (strat.OptionError, "device= and engine="): ("logistic", data, {"engine": "an engine"}),
    }
    for (error, match), (loss, arguments, more) in fails.items():
        with pytest.raises(error, match=match):
            model_of(loss, "MAPG").fit(*arguments, **options, **{"device": device} | more)


def test_numpy_arrays_go_to_torch(records):
    data, options = pytest.importorskip("torch") and records
    there, here = (model_of("huber").fit(*data, **options, device=device) for device in ("cpu", None))
    assert abs(there.result_.objective / here.result_.objective - 1) < 1e-10
    x = pytest.importorskip("torch").asarray(data[0])
    for wrong in (x.bfloat16(), x.clone().requires_grad_(), x.to_sparse()):
        for device in ("cpu", None, "meta"):
            with pytest.raises(strat.StratError, match="cannot be (read|used)"):
                model_of("huber").fit(wrong, *data[1:], **options, device=device)


def test_tensors_that_numpy_cannot_read_are_computed_with_where_they_are(records, monkeypatch):
    torch, (data, options), made = pytest.importorskip("torch"), records, []
    here = model_of("huber").fit(*data, **options)
    monkeypatch.setattr(strat.oracles.base, "HOST", 2)  # as if the memory of a CPU were a GPU's
    init = BlockLoss.__init__
    monkeypatch.setattr(BlockLoss, "__init__", lambda self, *own: made.append(self) or init(self, *own))
    tensors = [torch.asarray(each) for each in data]
    there = model_of("huber").fit(*tensors, **options | {"strata": torch.asarray(options["strata"])})
    assert made and abs(there.result_.objective / here.result_.objective - 1) < 1e-10
    scores = there.score(*tensors, strata=options["strata"]), here.score(*data, strata=options["strata"])
    assert scores[0] == pytest.approx(scores[1], rel=1e-6)
