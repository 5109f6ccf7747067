"""Types of the public names: all are written, and a user's script passes mypy and pyright."""

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import strat

SCRIPT = Path(__file__).with_name("typed_script.py")


def public_functions():
    """Functions of the public rooms, and the methods that users call."""
    for room in (strat, strat.graphs, strat.plot, strat.losses):
        for name in room.__all__:
            found = getattr(room, name)
            if inspect.isfunction(found):
                yield name, inspect.unwrap(found)
    for kind in (strat.StratifiedModel, strat.BaseModel):
        for name, found in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and found.__module__.startswith("strat"):
                yield f"{kind.__name__}.{name}", found


@pytest.mark.parametrize(("name", "function"), list(public_functions()))
def test_public_functions_have_types(name, function):
    signature = inspect.signature(function)
    without = [p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name != "self"]
    assert not without and signature.return_annotation is not signature.empty


def test_the_package_says_that_it_has_types_and_the_script_runs():
    assert Path(strat.__file__).with_name("py.typed").exists()
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, cwd=SCRIPT.parent)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_the_script_passes_type_checkers(checker):
    if shutil.which(checker) is None:
        pytest.skip(f"{checker} is not installed")
    options = {"mypy": ["--python-executable", sys.executable], "pyright": ["--pythonpath", sys.executable]}
    done = subprocess.run([checker, *options[checker], SCRIPT], capture_output=True, text=True)
    assert not [line for line in done.stdout.splitlines() if SCRIPT.name in line and "error" in line]
