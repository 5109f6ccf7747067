"""Docstrings: every public name has one that is complete, and every example in one runs."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from numpydoc.validate import validate

import strat
from strat import graphs, losses, plot

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
#: The checks of numpydoc.validate that hold here. Left out: those about layout that ruff or taste decides
#: (GL01-GL03, SS05, SS06), sections we do not ask for (ES01 extended summary, SA01 see also), RT02-RT05 and
#: PR06, PR08-PR10 (types such as "ndarray, shape (K, n)" are words, not Python).
CHECKS = {
    "GL05",  # no tabs
    "GL06",  # only known sections
    "GL07",  # sections in numpydoc's order
    "GL08",  # there is a docstring
    "GL09",  # a deprecation comes first
    "SS01",  # there is a summary
    "SS02",  # it begins with a capital letter
    "SS03",  # and ends with a full stop
    "SS04",  # without leading spaces
    "PR01",  # every parameter is documented
    "PR02",  # and no other
    "PR03",  # in the order of the signature
    "PR04",  # with a type
    "PR05",  # that does not end in a full stop
    "PR07",  # and a description
    "RT01",  # what is returned is documented
    "YD01",  # what is yielded too
}
DOCS = Path(__file__).parents[1] / "docs"
#: What the site leaves out, which other modules alone call: a summary is enough.
CONF = (DOCS / "conf.py").read_text(encoding="utf-8")
INTERNAL = re.search('INTERNAL = """(.*?)"""', CONF, re.DOTALL)[1].split()
MODULES = [
    info.name
    for info in pkgutil.walk_packages(strat.__path__, "strat.")
    if info.name != "strat.oracles._loops"  # compiled loops, loaded by strat.oracles.kernels
]


def public_objects():
    names = {f"strat.{name}": getattr(strat, name) for name in strat.__all__}
    for module in (graphs, losses, plot):
        names |= {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    return {name: x for name, x in names.items() if inspect.isclass(x) or inspect.isfunction(x)}


def public_methods():
    """Methods written in this package, not inherited from scikit-learn or ValueError."""
    for name, thing in public_objects().items():
        if not inspect.isclass(thing) or issubclass(thing, Exception):
            continue
        for method, member in inspect.getmembers(thing):
            function = getattr(member, "fget", member)
            own = getattr(function, "__module__", None) or ""
            if not method.startswith("_") and own.startswith("strat") and callable(function):
                yield f"{name}.{method}"


PUBLIC = public_objects()
#: What a user calls has an example; exceptions, warnings and what other calls return explain themselves.
USED = [
    name
    for name, thing in PUBLIC.items()
    if not (inspect.isclass(thing) and issubclass(thing, Exception))
    and name not in ("strat.Program", "strat.Result", "strat.LearnedGraph")
]


def complaints(name):
    checks = [code for code in CHECKS if code[0] in "GS"] if name.rpartition(".")[2] in INTERNAL else CHECKS
    return [f"{code} {text}" for code, text in validate(name)["errors"] if code in checks]


@pytest.mark.parametrize("name", [*PUBLIC, *public_methods()])
def test_docstrings_are_complete(name):
    assert complaints(name) == []


@pytest.mark.parametrize("name", USED)
def test_public_names_have_an_example(name):
    assert ">>>" in inspect.getdoc(PUBLIC[name]), f"show how {name} is used"


def test_the_page_of_the_api_lists_every_public_name():
    words = (DOCS / "api.md").read_text(encoding="utf-8").split()
    assert [name for name in {*USED, "strat.Program"} if name.rpartition(".")[2] not in words] == []


@pytest.mark.parametrize("module", ["strat", *MODULES])
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module), optionflags=FLAGS).failed == 0
