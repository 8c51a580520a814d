"""How Sphinx shows the pages. `make docs` (tools/site) prepares them first: see CONTRIBUTING.md."""

from __future__ import annotations

import undertow

project, author = "undertow", "The undertow authors"
version = release = undertow.__version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
highlight_language = "none"

toc_object_entries = False  # the navigation of every page would hold every function: half of the time of a build

html_theme = "furo"
html_title = f"undertow {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["search_data.js", "torch_names.js", "questions.js"]  # the first is made by tools/site
html_copy_source = False
html_show_copyright = html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "github-dark"
html_theme_options = {"navigation_with_keys": True}
