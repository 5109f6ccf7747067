"""Fits on a Dask cluster: records stay on the workers, and the numbers are those of records at hand."""

import os
import signal

import numpy as np
import pytest
from problems import linear

import strat

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

K, N, P = 6, 1200, 3
LOSSES = {"least squares": strat.losses.squared, "logistic": strat.losses.logistic}


def model_of(loss, **options):
    base = linear(LOSSES[loss], n=P, ridge=0.1)
    return strat.lrsm(base, strat.graphs.path(K, weight=2.0), solver=strat.NewtonCG(tol=1e-10, **options))


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    X, z = rng.normal(size=(N, P)), rng.integers(0, K, N)
    return X, np.sign(X @ [1.0, -1.0, 0.5] + rng.normal(size=N) + 0.3 * z), z


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "processes": False}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def shards_of(X, Y, z):
    make = dask.delayed(lambda first: (X[first::7], Y[first::7], z[first::7]))
    return [make(first) for first in range(7)]


@pytest.mark.parametrize("loss", LOSSES)
def test_delayed_shards_fit_as_records_at_hand(loss, records, client):
    X, Y, z = records
    whole = model_of(loss).fit(X, Y, strata=z)
    part = model_of(loss).fit(chunks=shards_of(*records), engine=client)
    np.testing.assert_allclose(part.theta_["theta"], whole.theta_["theta"], atol=1e-9)
    assert abs(part.result_.objective / whole.result_.objective - 1) < 1e-12


def test_dask_collections_fit_predict_and_score(records, client):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, Y, z = records
    frame = pd.DataFrame(X, columns=list("abc")).assign(y=Y, z=z)
    parts = dd.from_pandas(frame, npartitions=4)
    whole = model_of("logistic").fit(frame[list("abc")], Y, strata=z)
    part = model_of("logistic").fit(parts[list("abc")], parts["y"], strata=parts["z"], engine=client)
    np.testing.assert_allclose(part.theta_["theta"], whole.theta_["theta"], atol=1e-9)
    named = model_of("logistic").fit(list("abc"), "y", strata="z", chunks=parts, engine=client)
    assert np.array_equal(named.theta_["theta"], part.theta_["theta"])
    predicted = part.predict(parts[list("abc")], strata=parts["z"])
    np.testing.assert_allclose(predicted.compute(), whole.predict(frame[list("abc")], strata=z), atol=1e-9)
    weights = parts["a"].index.to_series() // 400  # 0 in one partition
    given = parts[list("abc")], parts["y"]
    expected = whole.score(frame[list("abc")], Y, strata=z, sample_weight=np.arange(N) // 400)
    assert part.score(*given, strata=parts["z"], sample_weight=weights) == pytest.approx(expected)
    assert part.score(*given, strata=parts["z"]) == pytest.approx(-whole.losses(X, Y, strata=z).mean())


def test_dask_frames_are_predicted_and_blended_as_those_at_hand(records):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(np.column_stack(records), columns=list("abcyz"))
    model, found = model_of("logistic").fit(*records[:2], strata=records[2]), []
    both = strat.blend(model, strat.common(model.base), folds=2)
    for table in (frame, dd.from_pandas(frame, npartitions=4)):
        data, own, new = (table[list("abc")], table["y"]), {"strata": table["z"]}, table["z"] + 1
        both.fit(*data, **own, sample_weight=new)
        found.append([both.predict(data[0], **own), both.score(*data, **own, sample_weight=new)])
        found[-1] += [model.predict(data[0], strata=new, unseen=way) for way in ("common", "graph")]
        found[-1] += [model.predict_proba(data[0], **own), model.decision_function(data[0], **own)]
    list(map(np.testing.assert_allclose, *found))


def test_dask_arrays(records, client):
    da = pytest.importorskip("dask.array")
    X, Y, z = records
    whole = model_of("least squares").fit(X, Y, strata=z)
    arrays = [da.from_array(a, chunks=300) for a in (X, Y, z)]
    part = model_of("least squares").fit(*arrays[:2], strata=arrays[2], engine=client)
    np.testing.assert_allclose(part.theta_["theta"], whole.theta_["theta"], atol=1e-9)
    model = model_of("least squares")
    for choose in (
        lambda data: strat.compare({"lrsm": model}, data=data, splits=2),
        lambda data: strat.search({"lrsm": model}, train=data, folds=2),
    ):
        tables = [choose(data).to_frame() for data in ((X, Y, z), arrays)]
        numbers = [table.select_dtypes("number").drop(columns="seconds") for table in tables]
        assert numbers[0].equals(numbers[1])
    with pytest.raises(strat.OptionError, match="2 and 4 partitions"):
        model_of("least squares").fit(*arrays[:2], strata=da.from_array(z, chunks=600), engine=client)


@pytest.mark.slow
def test_a_killed_worker_costs_nothing_but_time(records):
    X, Y, z = records
    whole = model_of("logistic").fit(X, Y, strata=z)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        workers = list(client.run(os.getpid).values())

        def kill(state):
            if state.iteration == 1:
                os.kill(workers[0], signal.SIGKILL)

        part = model_of("logistic", callback=kill).fit(chunks=shards_of(*records), engine=client)
    assert part.result_.status == "converged"
    assert abs(part.result_.objective / whole.result_.objective - 1) < 1e-12


@pytest.mark.slow
def test_without_a_scheduler_the_best_iterate_and_a_checkpoint_are_left(records, tmp_path):
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "processes": False}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        path = tmp_path / "checkpoint.npz"

        def close(state):
            if state.iteration == 1:
                cluster.close()

        model = model_of("logistic", callback=close, checkpoint=path)
        with pytest.warns(strat.ConvergenceWarning, match="scheduler is lost"):
            model.fit(chunks=shards_of(*records), engine=client)
    assert model.result_.status == "interrupted" and model.result_.iterations >= 1
    assert model.result_.objective < model.result_.history[0] and path.exists()
