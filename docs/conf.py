"""Sphinx configuration. Building the site runs the code of every page; an error in one ends the build."""

import hashlib
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rules_table import markdown

HERE = Path(__file__).parent

project = "strat"
author = "the strat developers"
html_show_copyright = False
release = metadata.version("strat")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx-mathjax-offline",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_design",
]
exclude_patterns = ["_build", "_templates", "conf.py", "check_site.py", "pictures.py", "rules_table.py"]
html_theme = "furo"
html_title = "strat"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"top_of_page_buttons": []}

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "substitution"]
myst_substitutions = {"rules": markdown()}  # the table of docs/rules.md, from the registry
myst_heading_anchors = 3

# Outputs are cached for as long as neither the page nor the package changes.
package = sorted(HERE.parent.glob("strat/**/*.py"))
state = hashlib.sha256(b"".join(path.read_bytes() for path in package)).hexdigest()[:12]
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "pages" / state)
nb_execution_raise_on_error = True
nb_execution_timeout = 1800  # seconds a cell, on a loaded machine
nb_execution_in_temp = True
nb_merge_streams = True
nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}  # docs/tutorials: links to examples

# A class's page shows its methods and those of its own bases; the template names scikit-learn's, which it leaves out.
templates_path = ["_templates"]
autosummary_generate = True
numpydoc_show_class_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings have them in words

#: What solvers, graph regularizers, programs and tables show to the rest of the package.
INTERNAL = """
    bind_records bind_regularizer cells columns constraints_alone couple_weights edge layout printed
    evaluation predictions get_metadata_routing hyperparameter_values learned needs learns_graphs oracle read run shared texts
    unguarded_call validate ways
""".split()  # noqa: SIM905


def setup(app):
    """Leave out internals, and the methods that scikit-learn adds for its metadata routing; its own pages explain them."""

    def skipped(app, what, name, member, skip, options):
        return True if name.endswith("_request") or name in INTERNAL else None

    app.connect("autodoc-skip-member", skipped)
