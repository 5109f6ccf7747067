"""The README's Python blocks run, in order; building the site runs those of the docs. Files that documents name exist."""

import re
import runpy
import shlex
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_readmes_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = list(re.finditer(r"^```python\n(?P<code>.*?)^```\s*$", text, re.M | re.S))
    assert blocks
    namespace = {"__name__": "__page__"}
    for match in blocks:
        # Empty lines before the block make a traceback point at the line of the page.
        first = text.count("\n", 0, match.start("code"))
        exec(compile("\n" * first + match["code"], "README.md", "exec"), namespace)


def test_the_sites_code_runs_when_it_is_built():
    # The front page shows an excerpt of a tutorial.
    pages = [page for page in PAGES if page.name not in ("README.md", "index.md")]
    assert [page.name for page in pages if "```python" in page.read_text(encoding="utf-8")] == []
    assert any("```{code-cell}" in page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_files_named_in_commands_exist(page):
    text = page.read_text(encoding="utf-8")
    for command in re.findall(r"^```(?:bash|console|sh)\n(.*?)^```", text, re.M | re.S):
        for word in shlex.split(command, comments=True):
            if word.endswith(".py"):
                assert (ROOT / word).is_file(), f"{page.name} names {word}"


def test_the_borders_of_the_states_are_symmetric_and_connected():
    states = runpy.run_path(str(ROOT / "examples" / "states.py"))
    borders, graph = states["BORDERS"], states["states_graph"]()
    assert all(state in borders[neighbor] for state, neighbors in borders.items() for neighbor in neighbors)
    assert list(borders) == sorted(borders)
    assert (len(graph), len(graph.edges), nx.is_connected(graph)) == (51, 109, True)
    contiguous = graph.subgraph(set(graph) - {"Alaska", "Hawaii"})
    assert (len(contiguous), len(contiguous.edges), nx.is_connected(contiguous)) == (49, 107, True)
