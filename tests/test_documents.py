"""Every Python block in the README and the docs runs, in order, one namespace a page."""

import re
import runpy
import shlex
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:<!--\s*skip:(?P<reason>[^>]*?)-->\s*)?^```(?:\{code-block\}\s*)?python[^\n]*\n(?P<code>.*?)^```\s*$",
    re.M | re.S,
)


def blocks(page):
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        first = text.count("\n", 0, match.start("code"))
        yield first, match["code"], match["reason"]


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace = {"__name__": "__page__"}
    for first, code, reason in blocks(page):
        if reason is None:
            # Empty lines before the block make a traceback point at the line of the page.
            exec(compile("\n" * first + code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_a_skipped_block_says_why(page):
    assert all(reason is None or len(reason.split()) >= 2 for _, _, reason in blocks(page))


def test_the_readme_shows_code():
    assert any(reason is None for _, _, reason in blocks(ROOT / "README.md"))


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
