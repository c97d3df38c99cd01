"""How Sphinx builds the documentation of the site; everything in it comes from the site itself."""

import gc

from stepwatch import __version__

gc.disable()  # the trees of the pages live to the end: searching them for garbage takes a fifth of the time

project = "stepwatch"
author = "The stepwatch authors"
release = __version__
extensions = ["myst_parser"]
master_doc = "docs/index"
exclude_patterns = ["examples/*"]
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # JSON with an ellipsis
html_theme = "furo"
html_title = "stepwatch"
html_favicon = "favicon.svg"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
templates_path = ["templates"]
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "to_the_page.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
