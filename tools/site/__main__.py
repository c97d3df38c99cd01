"""`python -m tools.site FOLDER`: builds the site and checks its links."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.site import build, runtime
from tools.site.links import faults

place = Path(sys.argv[1])
try:
    build(place)
except runtime.Unavailable as problem:
    sys.exit(f"the site cannot be made: {problem}")
if found := faults(place):
    sys.exit("\n".join(found))
size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
print(f"{place}: {size / 1e6:.1f} MB, no dead link. Look at it: python -m http.server -d {place}")
