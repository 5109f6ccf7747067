"""Sphinx configuration."""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rules_table import markdown

project = "strat"
author = "the strat developers"
html_show_copyright = False
release = metadata.version("strat")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "_templates"]
html_theme = "furo"
html_title = "strat"

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath", "substitution"]
myst_substitutions = {"rules": markdown()}  # the table of docs/rules.md, from the registry
myst_heading_anchors = 3

# A class's page shows the members written here (the template says so), not those of scikit-learn's base classes.
templates_path = ["_templates"]
autosummary_generate = True
numpydoc_show_class_members = False
autodoc_member_order = "bysource"


def setup(app):
    """Leave out the methods that scikit-learn adds for its metadata routing; its own pages explain them."""
    app.connect(
        "autodoc-skip-member",
        lambda app, what, name, member, skip, options: True if name.endswith("_request") else None,
    )
