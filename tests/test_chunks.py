"""Records in pieces: on threads, in chunks of maps, datasets and iterators; the sums are those of the records at once."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from pytest import approx

import strat
from strat.compiler import sharded
from strat.oracles import shards
from strat.records import chunks as chunks_module
from strat.solvers import preconditioner

K, N, P = 6, 1200, 3
X_, Y_ = cp.Parameter(P, name="x"), cp.Parameter(name="y")
THETA, B = cp.Variable(P, name="theta"), cp.Variable(name="b")
MARGIN = X_ @ THETA + B
LOSSES = {
    "least squares": cp.square(Y_ - MARGIN),
    "logistic": cp.logistic(-cp.multiply(Y_, MARGIN)),
    "a sum": cp.logistic(MARGIN) - 0.5 * (Y_ + 1) * MARGIN + 0.1 * cp.square(Y_ - B),
}


def base_of(loss):
    return strat.BaseModel(loss, 0.1 * cp.sum_squares(THETA), data=(X_, Y_), predict=MARGIN)


@pytest.fixture
def records():
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(N, P)), rng.integers(0, K, N)
    Y = np.sign(X @ [1.0, -1.0, 0.5] + rng.normal(size=N) + 0.3 * z)
    return X, Y, z, rng.integers(0, 3, N).astype(float)


def model_of(loss):
    return strat.lrsm(base_of(loss), strat.graphs.path(K, weight=2.0), solver=strat.NewtonCG(tol=1e-10))


def in_chunks(X, Y, z, w, size=100):
    return [tuple(a[first : first + size] for a in (X, Y, z, w)) for first in range(0, len(z), size)]


def refilled(chunks):
    """Chunks of one size, in the same arrays."""
    arrays = tuple(map(np.copy, chunks[0]))
    for chunk in chunks:
        for array, values in zip(arrays, chunk, strict=True):
            array[...] = values
        yield arrays


@pytest.fixture
def pieces(monkeypatch):
    monkeypatch.setattr(sharded, "MANY", 1)
    monkeypatch.setattr(sharded, "PIECE", 500)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kept", [0, 2**30])
@pytest.mark.parametrize("piece", [500, 50])
def test_pieces_fit_as_all_records_at_once(loss, kept, piece, records, pieces, monkeypatch):
    X, Y, z, w = records
    w[:300] = 0.0
    monkeypatch.setattr(sharded, "MANY", 10**9)
    whole = model_of(LOSSES[loss]).fit(X, Y, strata=z, sample_weight=w)
    monkeypatch.setattr(sharded, "MANY", 1)
    monkeypatch.setattr(sharded, "KEPT", kept)
    monkeypatch.setattr(sharded, "PIECE", piece)
    part = model_of(LOSSES[loss]).fit(X, Y, strata=z, sample_weight=w)
    np.testing.assert_allclose(part.theta_["theta"], whole.theta_["theta"], atol=1e-8)
    assert abs(part.result_.objective / whole.result_.objective - 1) < 1e-12


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_blocks_that_are_not_kept_are_inverted_in_place(loss, records, pieces, monkeypatch):
    X, Y, _, weight = records
    z = np.repeat(np.arange(K), N // K)  # ascending, so that pieces are neighbours
    monkeypatch.setattr(preconditioner, "CHEAP", 0)  # no banded factor, which is exact
    monkeypatch.setattr(sharded, "MANY", 10**9)
    whole = model_of(loss).fit(X, Y, strata=z, sample_weight=weight)
    monkeypatch.setattr(sharded, "MANY", 1)
    for name, module in (("BLOCKS", shards), ("STATISTICS", sharded), ("PART", preconditioner)):
        monkeypatch.setattr(module, name, 0)
    pieced = model_of(loss).fit(X, Y, strata=z, sample_weight=weight)
    assert pieced.theta_["theta"] == approx(whole.theta_["theta"], abs=1e-8)
    assert pieced.result_.iterations == whole.result_.iterations


def test_any_number_of_threads_gives_the_same_bits(records, pieces, monkeypatch):
    X, Y, z, _ = records
    fitted = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(shards, "cores", lambda threads=threads: threads)
        fitted.append(model_of(LOSSES["logistic"]).fit(X, Y, strata=z).theta_["theta"])
    assert np.array_equal(fitted[0], fitted[1]) and np.array_equal(fitted[0], fitted[2])


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.filterwarnings("ignore::strat.DataWarning")
@pytest.mark.parametrize("options", [{}, {"graph": None}])
def test_chunks_fit_as_records_at_hand(loss, options, records):
    X, Y, z, w = records
    w[:200] = w[400:500] = w[z == 2] = 0.0  # the first chunk, others and a stratum count for nothing
    model, other = (model_of(LOSSES[loss]).set_params(**options) for _ in "ab")
    whole = model.fit(X, Y, strata=z, sample_weight=w)
    part = other.fit(chunks=lambda: refilled(in_chunks(*records)))
    np.testing.assert_allclose(part.theta_["theta"], whole.theta_["theta"], atol=1e-8)
    assert abs(part.result_.objective / whole.result_.objective - 1) < 1e-12
    a, b = (strat.graphs.from_parameters(each, shrink=9.0).edges(data="weight") for each in (whole, part))
    assert [weight for *_, weight in a] == approx([weight for *_, weight in b], rel=1e-6)
    dots = [strat.plot.parameters(each, "b").lines[-1].get_xdata().tolist() for each in (whole, part)]
    assert dots == [[2], [2]]
    assert part.strata_ == whole.strata_ and part.score(X, Y, strata=z) == approx(whole.score(X, Y, strata=z))
    labels = ["rest", (1, "a"), 2]  # which keep their kinds
    assert set(strat.separate(model.base).fit(chunks=[(X[:3], Y[:3], labels)]).strata_) == set(labels)


def test_memory_maps_are_read_in_chunks_and_not_kept(records, tmp_path, monkeypatch):
    X, Y, z, w = records
    monkeypatch.setattr(chunks_module, "MANY", 1)
    monkeypatch.setattr(chunks_module, "ROWS", 128)
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    whole = model_of(LOSSES["logistic"]).fit(X.astype(np.float32).astype(float), Y, strata=z, sample_weight=w)
    part = model_of(LOSSES["logistic"]).fit(mapped, Y, strata=z, sample_weight=w)
    np.testing.assert_allclose(part.theta_["theta"], whole.theta_["theta"], atol=1e-8)
    with pytest.raises(strat.DataError, match="chunk 2: x has NaN in column 1 of record 4"):
        X = np.load(tmp_path / "x.npy", mmap_mode="c")
        X[2 * 128 + 4, 1] = np.nan
        model_of(LOSSES["logistic"]).fit(X, Y, strata=z)


def test_arrow_datasets(records, tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, Y, z, w = records
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y, "z": z, "w": w})
    parquet.write_table(table, tmp_path / "records.parquet", row_group_size=300)
    whole = model_of(LOSSES["logistic"]).fit(X, Y, strata=z, sample_weight=w)
    features = table.drop(["y", "w"])
    same = model_of(LOSSES["logistic"]).fit(features, table["y"], strata="z", sample_weight=table["w"])
    assert np.array_equal(same.predict(features, strata="z"), whole.predict(X, strata=z))
    options = {"strata": "z", "sample_weight": "w", "chunks": tmp_path / "records.parquet"}
    part = model_of(LOSSES["logistic"]).fit(["a", "b", "c"], "y", **options)
    np.testing.assert_allclose(part.theta_["theta"], whole.theta_["theta"], atol=1e-8)
    with pytest.raises(strat.OptionError, match="has no column 'd'"):
        model_of(LOSSES["logistic"]).fit(["d"], "y", strata="z", chunks=tmp_path / "records.parquet")


def test_what_is_no_source_of_chunks(records):
    model = model_of(LOSSES["logistic"])
    unknown, same = (records[0][:1], records[1][:1], [7]), iter(in_chunks(*records))
    for chunks, error, match in (
        (iter(in_chunks(*records)), strat.DataError, "gives its chunks once"),
        (lambda: same, strat.DataError, "same iterator each time, .* returns a new iterator"),
        (10, strat.DataError, "chunks= is 10. Pass a list of chunks, tuples"),
        (pd.DataFrame(records[0]), strat.OptionError, "DataFrame, a table in memory, .*without chunks="),
        ([records[:1]], strat.DataError, "chunk 0 must be a tuple"),
        ([], strat.DataError, "has no records"),
        (in_chunks(*records[:3], np.zeros(N)), strat.DataError, "nothing to fit"),
        ([records[:3], unknown], strat.GraphError, "chunk 1: stratum 7 is not a node"),
    ):
        with pytest.raises(error, match=match):
            model.fit(chunks=chunks)
    base, X = strat.BaseModel(X_[0] * cp.square(Y_ - B), data=(X_, Y_)), abs(records[0])
    for n, match in ((1, "0 .stratum 5."), (0, "0 has")):  # in the sample too
        with pytest.raises(strat.DataError, match=f"^chunk 1: the loss is convex .* record {match}"):
            strat.separate(base).fit(chunks=[(X[:n], [1.0] * n, [5] * n), (-X[:1], [1.0], [5])])
    with pytest.raises(strat.NoOracleError, match="follow gradients, but abs.* smoothing=1e-3"):
        strat.lrsm(base_of(cp.abs(Y_ - MARGIN)), strat.graphs.path(K)).fit(chunks=in_chunks(*records))
    with pytest.raises(strat.OptionError, match="engine must be"):
        model.fit(chunks=in_chunks(*records), engine=3)


class Backwards:
    """An engine that makes its shards once, and visits them from the last to the first."""

    def map(self, function, chunks):
        return [function(chunk) for chunk in chunks]

    def start(self, make, chunks, K):
        self.made, self.K = [make(chunk) for chunk in chunks()][::-1], K
        return self

    def sum(self, task, *arrays):
        return shards.added((shard(task, *arrays) for shard in self.made), self.K)


def test_an_engine_of_ones_own(records):
    whole = model_of(LOSSES["logistic"]).fit(*records[:2], strata=records[2], sample_weight=records[3])
    part = model_of(LOSSES["logistic"]).fit(chunks=in_chunks(*records), engine=Backwards())
    np.testing.assert_allclose(part.theta_["theta"], whole.theta_["theta"], atol=1e-8)


def test_shared_parameters_and_learned_graphs_from_chunks(records):
    X, Y, z, w = records
    base, h = base_of(LOSSES["logistic"]), strat.LogDet(1.0, 0.1, 0.5, 0.1)
    for make in (lambda: strat.joint(base, strat.graphs.path(K), h), lambda: strat.common(base)):
        whole, part = make().fit(X, Y, strata=z, sample_weight=w), make().fit(chunks=in_chunks(*records))
        assert part.result_.objective == pytest.approx(whole.result_.objective, rel=1e-6)


@pytest.mark.filterwarnings("ignore::strat.ConvergenceWarning")
def test_a_checkpoint_of_chunks_is_refused_for_other_records_after_the_first(records, tmp_path):
    chunks, solver = in_chunks(*records), strat.MAPG(tol=0.0, max_iter=1, checkpoint=tmp_path / "fit")
    model = model_of(LOSSES["logistic"]).set_params(solver=solver).fit(chunks=chunks)
    with pytest.raises(strat.OptionError, match="holds no state of this fit"):
        model.fit(chunks=[*chunks[:-1], chunks[0]])
    model.set_params(solver__max_iter=2).fit(chunks=chunks)


def test_chunks_without_a_minimum_are_warned_of(records):
    model = strat.lrsm(strat.BaseModel(LOSSES["logistic"], data=(X_, Y_)), strat.graphs.path(K))
    with pytest.warns(strat.ConvergenceWarning, match="The objective has no minimum"):
        model.fit(chunks=[(records[0], np.sign(records[0][:, 0]), records[2])])


def test_float32_records_are_not_copied(records):
    X, Y, z, _ = records
    model = model_of(LOSSES["least squares"]).fit(X.astype(np.float32), Y, strata=z)
    assert model._training.arrays[0].dtype == np.float32
    assert model.theta_["theta"].dtype == float


def test_chunks_hold_declared_columns_of_strata(records):
    X, Y, z, _ = records
    base, table = base_of(LOSSES["least squares"]), np.c_[z, X]
    expected = strat.separate(base).fit(X, Y, strata=z).theta_["theta"]
    for declared, rows in ((0, table), ("z", pd.DataFrame(table, columns=list("zabc")))):
        chunks = [(rows[first : first + 300], Y[first : first + 300]) for first in range(0, N, 300)]
        model = strat.separate(base, strata=declared).fit(chunks=chunks)
        assert np.allclose(model.theta_["theta"], expected, rtol=1e-6)
        assert list(getattr(model, "feature_names_in_", "0abc")) == [str(declared), *"abc"]


def test_blocks_that_are_held_keep_their_memory():
    """Sums of blocks take the memory of earlier ones once nobody has these, nor views of them, any more."""
    blocks = np.arange(24.0).reshape(K, 2, 2)
    engine = shards.LocalSum(lambda: [lambda: lambda task, factor: (np.arange(K), (factor * blocks,))], K)
    first = engine.sum(None, 1.0)[0][1:]
    second = engine.sum(None, 2.0)[0]
    assert (first == blocks[1:]).all() and (second == 2 * blocks).all()
    place = second.ctypes.data
    del second
    third = engine.sum(None, 3.0)[0]
    assert third.ctypes.data == place and (third == 3 * blocks).all() and (first == blocks[1:]).all()
