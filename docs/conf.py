"""How the documentation site is made: `make docs`. Everything is local; no other site is asked."""

import os
import re

# Reading docstrings needs no accelerator.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import sosmarkov

project = "sosmarkov"
author = "The sosmarkov developers"
project_copyright = author
release = version = sosmarkov.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
# Pages point to files of the repository (examples, results) as well as to each other.
suppress_warnings = ["myst.xref_missing"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": False, "show-inheritance": False}
autoclass_content = "class"
napoleon_google_docstring = True
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"sosmarkov {release}"
html_show_sphinx = False


def _as_plain_text(app, what, name, obj, options, lines):
    """Docstrings are plain text with formulas: bars and stars are no markup, and `names` are code."""
    for index, line in enumerate(lines):
        parts = line.split("`")
        parts[::2] = [re.sub(r"([|*])", r"\\\1", part) for part in parts[::2]]
        lines[index] = "``".join(parts)


def setup(app):
    """Called by Sphinx; before the sections of docstrings are read."""
    app.connect("autodoc-process-docstring", _as_plain_text, priority=100)
