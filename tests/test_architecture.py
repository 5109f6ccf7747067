"""The rooms of the package, read from the imports: they go one way, and what iterates never sees CVXPY."""

import ast
import re
import sys
from functools import cache
from pathlib import Path
from statistics import median

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "strat"

#: What iterates sees arrays only: CVXPY is never called inside an iteration.
WITHOUT_CVXPY = ["errors", "oracles", "problem", "solvers", "model.linearization"]
#: Graph regularizers give their formula as a CVXPY expression, on request.
ON_REQUEST = "problem.graph_regularizers"
MAX_ENTRIES, MAX_FLOORS = 14, 12
#: The one module that knows CVXPY's atom classes, which move between releases.
ATOMS = "strat.rules.atoms"
#: What `pip install strat` brings (Clarabel through CVXPY); anything else is an extra and imported where it is used.
REQUIRED = {"clarabel", "cvxpy", "networkx", "numpy", "osqp", "scipy", "scs", "sklearn"}
MAX_LINES, MAX_MEDIAN = 350, 150


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
INNER = [name for name in MODULES if name != "strat"]


@cache
def tree(module):
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imported(node, module):
    """The dotted names that an import statement may load, `from a import b` giving a and a.b."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return set()
    source = node.module
    if node.level:
        package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
        above = package.split(".")[: len(package.split(".")) - node.level + 1]
        source = ".".join([*above, *filter(None, [node.module])])
    return {source} | {f"{source}.{alias.name}" for alias in node.names}


@cache
def imports(module):
    """Every import, those inside functions too."""
    return set().union(*(imported(node, module) for node in ast.walk(tree(module))))


@cache
def own_imports(module):
    found = {name for name in imports(module) if name in MODULES and name != module}
    # `from strat import graphs` needs the submodule, not the names that strat/__init__.py collects.
    return found - {"strat"} if any(name.startswith("strat.") for name in found) else found


def room(module):
    """The folder, or the single file, at the top of the package."""
    return module.split(".")[1]


def within(module, parts):
    name = module.partition(".")[2]
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def rooms():
    """The graph of rooms: an edge where a module of one imports a module of the other."""
    pairs = {(room(module), room(name)) for module in INNER for name in own_imports(module)}
    return nx.DiGraph([(a, b) for a, b in pairs if a != b])


def test_rooms_are_few():
    entries = {path.name for path in PACKAGE.iterdir()} - {"__pycache__"}
    assert len(INNER) > 10 and len(entries) <= MAX_ENTRIES, sorted(entries)


def test_rooms_import_one_another_in_one_direction():
    cycles = [part for part in nx.strongly_connected_components(rooms()) if len(part) > 1]
    assert not cycles and nx.dag_longest_path_length(rooms()) < MAX_FLOORS


def test_imports_make_no_cycle():
    # A package's __init__ gathers its own modules, so that they may not go through it.
    edges = [(module, name) for module in INNER for name in own_imports(module)]
    edges = [(module, name) for module, name in edges if not module.startswith(f"{name}.")]
    assert not [part for part in nx.strongly_connected_components(nx.DiGraph(edges)) if len(part) > 1]


def loaded(module):
    """Every module that importing this one loads, itself included; not what functions import when called."""
    found, stack = set(), [module]
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            at_the_top = set().union(*(imported(node, name) for node in tree(name).body))
            stack += [other for other in at_the_top if other in MODULES and other != "strat"]
    return found


@pytest.mark.parametrize("module", [name for name in INNER if within(name, WITHOUT_CVXPY)])
def test_what_iterates_never_imports_cvxpy(module):
    for name in loaded(module):
        seen = imports(name) if not within(name, [ON_REQUEST]) else set()
        seen = seen.union(*(imported(node, name) for node in tree(name).body))
        assert "cvxpy" not in {each.split(".")[0] for each in seen}, name


@pytest.mark.parametrize("module", [name for name in MODULES if name != ATOMS])
def test_one_module_knows_the_atom_classes(module):
    direct = {n for n in imports(module) if re.match(r"cvxpy\.(atoms|reductions|expressions\.leaf)\b", n)}
    through = [n.lineno for n in ast.walk(tree(module)) if isinstance(n, ast.Attribute) and is_atoms(n)]
    assert not direct
    assert not through


def is_atoms(node):
    return node.attr == "atoms" and isinstance(node.value, ast.Name) and node.value.id in ("cp", "cvxpy")


@pytest.mark.parametrize("module", MODULES)
def test_extras_are_imported_where_they_are_used(module):
    at_the_top = set().union(*(imported(node, module) for node in tree(module).body))
    assert {name.split(".")[0] for name in at_the_top} - set(sys.stdlib_module_names) <= REQUIRED | {"strat"}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_is_pickled(module):
    assert not {"pickle", "joblib", "dill", "marshal", "shelve"} & imports(module)


def test_files_are_of_one_idea():
    lines = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lines.items() if count > MAX_LINES} == {}
    assert median(lines.values()) <= MAX_MEDIAN


@pytest.mark.parametrize("module", MODULES)
def test_no_module_is_named_after_nothing(module):
    assert not {"util", "utils", "helpers", "common", "misc"} & set(module.split("."))


def test_every_folder_is_a_package():
    # A folder without __init__.py works in a checkout and is missing from the wheel.
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_top_level_folders_are_few():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    built = {"build", "dist", "strat.egg-info", "__pycache__", "venv"}
    assert folders - built <= {"strat", "tests", "examples", "docs", "benchmarks"}


def test_no_merge_is_left_half_done():
    # Not a .venv beside them.
    folders = [ROOT / name for name in ("strat", "tests", "examples", "docs", "benchmarks")]
    files = [*ROOT.iterdir(), *(path for folder in folders for path in folder.rglob("*"))]
    sources = [path for path in files if path.suffix in (".py", ".c", ".md", ".cfg", ".in")]
    marks = re.compile(r"^(<{7} |>{7} |\|{7} )", re.MULTILINE)
    assert [path for path in sources if marks.search(path.read_text(encoding="utf-8"))] == []
