"""Sphinx: the repository as it is read on a code host, as a site. `make docs`.

The source folder is the repository itself and not docs/, so that every relative link,
to a notebook, a table of results or a test, means the same here and there.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "fedridge_flwr"
author = "The fedridge_flwr developers"
copyright = "the fedridge_flwr developers, Apache-2.0"
version = release = installed_version("fedridge-flwr")

root_doc = "docs/index"
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/**/*.md",
    "notebooks/*.ipynb",
    "benchmarks/README.md",
    "deployment/README.md",
    "examples/README.md",
    "simulations/README.md",
    "simulations/results/*.md",
    "simulations/results/**/*.md",
]
exclude_patterns = ["**/.venv", ".git", "results", "docs/_build", "**/.*"]

extensions = ["mathml", "myst_nb", "sphinx_copybutton"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4
html_math_renderer = "mathml"
nb_execution_mode = "off"  # `make notebooks` and the tests execute them
nb_merge_streams = True

copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

highlight_language = "text"  # blocks that name no language are no Python

html_theme = "furo"
html_title = f"fedridge_flwr {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["tables.js"]
templates_path = ["_templates"]
html_additional_pages = {"index": "to_docs.html"}
html_theme_options = {"navigation_with_keys": True}
html_show_sourcelink = False
html_use_index = False  # nothing is indexed: it would be an empty page
smartquotes_action = "qe"  # "--strict" is an option and no dash
suppress_warnings = ["mystnb.unknown_mime_type"]
