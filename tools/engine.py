"""Writes the script that draws the charts of a page: `python -m tools.engine` after an update of vl-convert.

Vega and its libraries are the work of others; their notices, vega-licences.txt, are at the start of the script.
"""

from __future__ import annotations

from pathlib import Path

PLACE = Path(__file__).parents[1] / "src/stepwatch/presenters/page/vega.js"
NOTICES = PLACE.with_name("vega-licences.txt")


def engine() -> str:
    """All three in one script, as bundled by vl-convert; it cannot close the element that contains it."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
    return f"/*\n{NOTICES.read_text(encoding='utf-8')}*/\n{script}"


if __name__ == "__main__":
    PLACE.write_text(engine(), encoding="utf-8")
