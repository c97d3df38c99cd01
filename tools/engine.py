"""Writes the script that draws the charts of a page: `python -m tools.engine` after an update of vl-convert.

Vega, Vega-Lite and Vega-Embed are of the University of Washington Interactive Data Lab, under the BSD 3-Clause License.
"""

from __future__ import annotations

from pathlib import Path

PLACE = Path(__file__).parents[1] / "src/stepwatch/presenters/page/vega.js"
NOTICE = """\
/* Vega, Vega-Lite and Vega-Embed: https://github.com/vega, BSD 3-Clause License. Written by tools/engine.py. */
"""


def engine() -> str:
    """All three in one script, as vl-convert carries them; it cannot close the element that it stands in."""
    import vl_convert

    return NOTICE + vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


if __name__ == "__main__":
    PLACE.write_text(engine(), encoding="utf-8")
