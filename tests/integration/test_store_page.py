"""`serve --store`: all runs in a table, and a click to the report of one."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from tests.builders import Truth, a_log
from tests.integration.serving import serving

from stepwatch.errors import StepwatchError
from stepwatch.fleet.collect import CollectRequest, collect
from stepwatch.fleet.pages import page


def test_the_runs_of_a_store_lead_to_their_reports(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for seed in range(3):
        (logs / f"run{seed}.log").write_text(a_log(Truth(seed=seed, max_iters=100, timestamps=True)))
    collect(CollectRequest(places=(str(logs),), into=str(tmp_path / "store"), workers=1))
    with serving("--store", str(tmp_path / "store")) as server:
        text = urlopen(f"{server.address}/store").read().decode()
        links = [unescape(link) for link in re.findall(r'class="to" href="(\?source=[^"]+)"', text)]
        assert len(links) == 3
        assert "By week" in text
        script = re.search(r'src="(page/store\.js[^"]+)"', text)
        assert script is not None
        assert b"filter" in urlopen(f"{server.address}/{script[1]}").read()
        report = urlopen(f"{server.address}/store{links[0]}&lang=de").read().decode()
        assert "Trainingsschritt" in report
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{server.address}/store?" + urlencode({"source": "/etc/passwd"}))
        assert refused.value.code == 422
        refused.value.close()
    # The process that makes each answer takes a second to start: what else it says is asked for here.
    assert page(str(tmp_path / "store"), "en", {"where": "source like '%run1.log'"}).count('class="to"') == 1
    for wrong in ({"where": "nothing ="}, {"since": "soon"}):
        with pytest.raises(StepwatchError):
            page(str(tmp_path / "store"), "en", wrong)
