"""Files that were damaged, are foreign or of another fit, or cannot be written: the same answer, or an error that says why."""

import json
import os
import resource
import stat
import warnings
from contextlib import contextmanager, suppress

import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import strat
from strat import OptionError
from strat.model.bound_model import BoundModel
from strat.records.archive import CONTENTS, read_archive, write_archive
from strat.records.labels import read_labels
from strat.records.strata import Strata

RNG = np.random.default_rng(5)
X, Z = RNG.standard_normal((24, 2)), np.repeat([("F", 0), ("F", 1), ("M", 0), ("M", 1)], 6, axis=0)
Z = [("F" if a == "F" else "M", int(b)) for a, b in Z]
Y = X @ [1.0, -0.5] + RNG.standard_normal(24)
GRAPH = strat.graphs.product(strat.graphs.path(["F", "M"], name="sex"), strat.graphs.path(2, name="age"))


def declared(A=None, named=True, constraint=False, **options):
    """A logistic loss with the matrix A in it, with a hyperparameter, and a constraint that leaves no closed prox."""
    names = {"name": "theta"} if named else {}
    theta, x, y = cp.Variable(2, **names), cp.Parameter(2, name="x"), cp.Parameter(name="y")
    lam = cp.Parameter(2, nonneg=True, name="lam", value=[0.5, 0.1])
    A, sets = np.eye(2) if A is None else A, [cp.norm2(theta) <= 9] if constraint else []
    loss = cp.logistic(-y * (x @ theta)) + cp.sum_squares(A @ theta) / 1000
    return strat.BaseModel(loss, lam @ cp.abs(theta), sets, (x, y), predict=x @ theta, **options)


BASE = declared()


def broken_bytes(content):
    """Truncated files, files with a byte changed, and files that never were archives of this kind."""
    yield from (content[:end] for end in np.linspace(0, len(content) - 1, 20).astype(int))
    for at in np.linspace(0, len(content) - 1, 30).astype(int):
        yield content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :]
    yield from (b"text", b"\x93NUMPY\x01\x00", b"\x80\x04]\x94.", b"PK\x05\x06" + bytes(18), 2 * content)


def broken_arrays(arrays):
    """The arrays with one of them dropped or of another size."""
    for name, array in arrays.items():
        yield {other: value for other, value in arrays.items() if other != name}
        yield {**arrays, name: array.reshape(-1)[:-1]}


def broken_files(path):
    """The entries of model files with one of them dropped or of another size, and with text that is no model's."""
    arrays = read_archive(path)
    meta = json.loads(str(arrays["meta"]))
    yield from broken_arrays(arrays)
    for name in meta:
        yield {**arrays, "meta": json.dumps({other: value for other, value in meta.items() if other != name})}
    for text in ("[]", "3", "{", "", '{"tuple": [' * 5000 + "1" + "]}" * 5000):
        yield {**arrays, "meta": text}


def same_model(found, model):
    predicted = np.array_equal(found.predict(X, strata=Z), model.predict(X, strata=Z))
    return predicted and found.strata_ == model.strata_ and np.array_equal(found.W_, model.W_)


@pytest.mark.filterwarnings("ignore:.* was fitted with another declaration")
def test_damaged_model_files_end_in_the_packages_error(tmp_path):
    with warnings.catch_warnings(action="ignore", category=strat.ConvergenceWarning):
        model = strat.joint(BASE, GRAPH, solver=strat.MAPG(max_iter=3))
        model.set_params(base__lam=[0.1, 0.2], scale__age=2.0).fit(X, Y, strata=Z)
    path = tmp_path / "model.npz"
    model.save(path)
    content, tried, refused = path.read_bytes(), 0, 0

    def check():
        nonlocal tried, refused
        tried += 1
        try:
            assert same_model(strat.load(path, BASE), model)
        except strat.StratError as error:
            assert len(str(error)) > 40
            refused += 1

    for entries in broken_files(path):
        np.savez(path, **entries)
        check()
    for changed in broken_bytes(content):
        path.write_bytes(changed)
        check()
    assert tried > 80
    assert refused > 0.6 * tried


@pytest.mark.parametrize(
    ("entry", "new", "text"),
    [
        ("format", 2, "it has format 2, and this version reads format 1"),
        ("strata", [{"timezone": 1}], "{'timezone': 1} is not a label of a known type"),
        ("strata", ["M", "M"], "the label .* occurs more than once"),
        ("result", {}, "missing .* required positional argument"),
        (
            "solver",
            {"class": "MAPG", "params": {"new": 1}},
            "params of MAPG that this version of strat does not take: .*new",
        ),
    ],
)
def test_what_is_wrong_with_a_model_file_is_named(tmp_path, entry, new, text):
    path = tmp_path / "model.npz"
    strat.lrsm(BASE, GRAPH, solver=strat.MAPG()).fit(X, Y, strata=Z).save(path)
    arrays = read_archive(path)
    meta = {**json.loads(str(arrays.pop("meta"))), entry: new}
    np.savez(path, meta=np.array(json.dumps(meta)), **arrays)
    with pytest.raises(OptionError, match=text):
        strat.load(path, BASE)


def test_sparse_weights_are_checked(tmp_path):
    path, model = tmp_path / "model.npz", strat.lrsm(BASE, GRAPH).fit(X, Y, strata=Z)
    model.W_ = sp.csr_array(model.W_)
    model.save(path)
    assert (strat.load(path).W_ != model.W_).nnz == 0
    arrays = read_archive(path)
    for name, change in (("W/indptr", arrays["W/indptr"][::-1]), ("W/indices", arrays["W/indices"] + 9)):
        np.savez(path, **{**arrays, name: change})
        with pytest.raises(OptionError, match="is not a model saved by this version of strat"):
            strat.load(path, BASE)


def test_a_number_changed_in_a_file_is_noticed(tmp_path):
    path = tmp_path / "model.npz"
    strat.lrsm(BASE, GRAPH).fit(X, Y, strata=Z).save(path)
    arrays = dict(np.load(path))
    arrays["theta/theta"] = arrays["theta/theta"] + 1e-9
    np.savez(path, **arrays)
    with pytest.raises(OptionError, match="changed after it was written, at 'theta/theta'"):
        strat.load(path)
    with pytest.raises(OptionError, match="path = 3 is no path"):
        strat.load(3)
    with pytest.raises(FileNotFoundError):
        strat.load(tmp_path / "none")


def fit(path, base=BASE, max_iter=4, make=strat.joint, data=(X, Y), solver=strat.MAPG, init=None, **options):
    steps = options.pop("steps", {})
    validation = options.pop("validation", None)
    constants = {"base__lam": options.pop("lam", [0.5, 0.1])}
    method = solver(tol=1e-13, max_iter=max_iter, checkpoint=path, **steps)
    model = make(base, GRAPH, solver=method, **options)
    model.set_params(**constants)
    with warnings.catch_warnings(action="ignore", category=strat.ConvergenceWarning):
        return model.fit(*data, strata=Z, init=init, validation=validation)


@pytest.mark.filterwarnings("ignore:MAPG stopped")
def test_damaged_checkpoints_end_in_the_packages_error(tmp_path):
    path = tmp_path / "fit.npz"
    p = BoundModel(strat.joint(BASE, GRAPH), (X, Y), Z).problem()

    def run(path):
        return strat.MAPG(tol=0, max_iter=4, checkpoint=path)._run(p, np.zeros((p.K, p.n)), p.w0).history

    whole = run(path)
    content, saved, tried = path.read_bytes(), dict(np.load(path)), 0
    for arrays in broken_arrays(saved):
        tried += 1
        np.savez(path, **arrays)
        with pytest.raises(OptionError, match="holds no state of this fit: .*Give another path"):
            run(path)
    for changed in broken_bytes(content):
        path.write_bytes(changed)
        tried += 1
        with suppress(OptionError):
            assert run(path) == whole
    assert tried > 100
    del saved[CONTENTS]
    write_archive(path, {name: value for name, value in saved.items() if name != "algorithm_x_w"})
    with pytest.raises(OptionError, match="has no 'x_w'"):
        run(path)


A = RNG.standard_normal((600, 2))  # printed as […]
OTHER_FITS = {
    "a constant array": {"base": declared(A[::-1] * 2)},
    "smoothing": {"base": declared(A, smoothing=1e-3)},
    "a hyperparameter": {"lam": [0.5, 0.2]},
    "a hyperparameter in another order": {"lam": [0.1, 0.5]},
    "records": {"data": (X + 1e-9, Y)},
    "a start": {"init": {"theta": np.ones((4, 2))}},
    "a seed": {"random_state": 1},
    "a graph regularizer": {"graph_regularizer": strat.LogDet(1.0, 1.0, 0.1, 1.5)},
    "a scale": {"scale": 2.0},
    "other edges": {"edges": "prior"},
    "steps": {"steps": {"step": (1e-3, 1e-3)}},
    "a solver": {"solver": strat.AlternatingMinimization},
    "validation records": {"steps": {"patience": 50}, "validation": (X[:4], Y[:4], Z[:4])},
}


@pytest.mark.parametrize("changed", OTHER_FITS)
def test_a_checkpoint_belongs_to_all_that_a_fit_depends_on(tmp_path, changed):
    path, base = tmp_path / "fit.npz", declared(A)
    fit(path, base)
    with pytest.raises(OptionError, match="it is of another declaration, constants, data, graph, start or"):
        fit(path, **{"base": base, **OTHER_FITS[changed]})


@pytest.mark.parametrize("make", [strat.joint, strat.lrsm, strat.common])
def test_a_declaration_made_anew_takes_up_its_checkpoint(tmp_path, make):
    path = tmp_path / "fit.npz"
    whole = fit(None, declared(A, constraint=True), 8, make)
    fit(path, declared(A, named=False, constraint=True), 3, make)
    # Whose variable has another number.
    resumed = fit(path, declared(A, named=False, constraint=True), 8, make)
    assert resumed.result_.history == whole.result_.history
    assert np.array_equal(resumed.result_.theta, whole.result_.theta)
    assert np.array_equal(resumed.W_, whole.W_)


@contextmanager
def full_disk(size=2000):
    """No file may become longer than `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_model_that_cannot_be_written_leaves_what_was_there(tmp_path, monkeypatch):
    path, model = tmp_path / "model.npz", strat.lrsm(BASE, GRAPH).fit(X, Y, strata=Z)
    model.save(path)
    path.chmod(0o640)
    content = path.read_bytes()
    text = r"cannot be written \(File too large\); what was there"
    with full_disk(), pytest.raises(OptionError, match=text):
        model.save(path)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(OptionError, match=r"cannot be written \(Permission denied\)"):
        model.save(path)
    monkeypatch.undo()
    for other in (tmp_path, tmp_path / "none" / "model.npz", os.devnull):
        with pytest.raises(OptionError, match="cannot be written"):
            model.save(other)
    with pytest.raises(OptionError, match="path = None is no path"):
        model.save(None)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]
    link = tmp_path / "link.npz"
    link.symlink_to(path)
    model.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert same_model(strat.load(path, BASE), model)


def test_a_checkpoint_that_cannot_be_written_is_a_warning(tmp_path):
    path = tmp_path / "fit.npz"
    whole = fit(path)
    content = path.read_bytes()
    text = r"cannot be written \(File too large\). The fit goes on"
    with full_disk(), pytest.warns(strat.DataWarning, match=text):
        resumed = fit(path, max_iter=6)
    assert resumed.result_.history[:5] == whole.result_.history
    assert resumed.result_.iterations == 6
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_instants_a_nanosecond_apart_are_strata_of_their_own(tmp_path):
    instants = np.datetime64("2020-01-01T00:00:00.000000000", "ns") + np.array([1, 0, 2, 1])
    forms = (instants, list(instants), pd.Series(instants), [pd.Timestamp(t) for t in instants])
    for form in forms:
        strata = Strata.read(form)
        assert strata.labels == [pd.Timestamp(t) for t in instants[[1, 0, 2]]]
        assert strata.index.tolist() == [1, 0, 2, 1]
    model = strat.lrsm(BASE, nx.path_graph(read_labels(instants).values)).fit(X[:4], Y[:4], strata=forms[2])
    model.save(tmp_path / "model.npz")
    loaded = strat.load(tmp_path / "model.npz", BASE)
    assert loaded.strata_ == model.strata_
    for form in forms:
        assert np.array_equal(loaded.predict(X[:4], strata=form), model.predict(X[:4], strata=instants))
    zoned = [pd.Timestamp(t, tz="UTC") for t in instants]
    with pytest.raises(OptionError, match="cannot be stored"):
        strat.separate(BASE).fit(X[:4], Y[:4], strata=zoned).save(tmp_path / "model.npz")
