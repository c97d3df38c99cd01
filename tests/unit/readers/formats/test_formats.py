"""A new log format is one file and one row: what docs/contributing.md shows, done at run time."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from stepwatch import readers
from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import formats, read
from stepwatch.readers.text.line_format import LineFormat
from stepwatch.sources import from_text

GUIDE = Path(__file__).resolve().parents[4] / "docs" / "contributing.md"
EXAMPLE = re.compile(r"<!-- toy format -->\n```python\n(.*?)```", re.DOTALL)


def _took(lap: int) -> str:
    return f"{9.0 if lap == 1 else 0.25 + lap % 5 / 1000:.3f} seconds"


LOG = "\n".join(
    [
        "toy trainer on NVIDIA GeForce RTX 4070, 8192 tokens a lap",
        *(
            line
            for lap in range(1, 101)
            for line in (
                f"lap {lap} of 400 took {_took(lap)}, loss {5 - lap / 50:.3f}",
                *([f"exam after lap {lap}: 4.2 ({2.0 + lap / 1000:.2f} seconds)"] if lap % 20 == 0 else []),
                *(["kept lap 60"] if lap == 60 else []),
            )
        ),
        "",
    ]
)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> LineFormat:
    """The file that the guide shows, and the row."""
    shown = EXAMPLE.search(GUIDE.read_text(encoding="utf-8"))
    assert shown is not None
    names: dict[str, object] = {}
    exec(shown[1], names)
    module = ModuleType("toy")
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, f"{formats.__name__}.toy", module)
    monkeypatch.setitem(formats.FORMATS, "toy", "toy")
    toy = names["FORMAT"]
    assert isinstance(toy, LineFormat)
    return toy


def test_without_the_row_the_log_is_nobodys() -> None:
    with pytest.raises(NoIterations):
        read(from_text(LOG))


def test_the_format_is_found_by_its_lines_alone(toy: LineFormat) -> None:
    assert readers.detect(from_text(LOG)) == toy.name
    assert readers.detect(from_text("iter 100: loss 4.2000, time 168.60ms, mfu 3.21%\n")) == "nanogpt"


def test_rows_events_and_facts_are_there(toy: LineFormat) -> None:
    (run,) = read(from_text(LOG))
    assert run.format == "toy"
    assert run.iterations.number.tolist() == list(range(1, 101))
    assert run.iterations.time_s[:3].tolist() == [9.0, 0.252, 0.253]
    assert [(exam.at, exam.val_loss) for exam in run.evaluations] == [(at, 4.2) for at in (20, 40, 60, 80, 100)]
    assert [save.at for save in run.checkpoints] == [60]
    assert run.settings.count("tokens_per_iter") == 8192
    assert run.settings.count("max_iters") == 400
    assert run.gpu_text is not None
    assert "4070" in run.gpu_text


def test_the_run_is_explained(toy: LineFormat) -> None:
    analysis = analyse(read(from_text(LOG))[0])
    assert analysis.costs.step_s.mid == pytest.approx(0.252, rel=0.01)
    assert analysis.costs.eval_s is not None
    assert analysis.costs.eval_s.mid == pytest.approx(2.06, rel=0.01)
    assert analysis.forecast.max_iters == 400


def test_a_line_that_is_nearly_right_is_named(toy: LineFormat) -> None:
    (run,) = read(from_text(LOG + "lap 101 of 400 took a while, loss 3.1\n"))
    assert [unread.text for unread in run.unread] == ["lap 101 of 400 took a while, loss 3.1"]


def test_its_own_example_is_read(toy: LineFormat) -> None:
    shown = re.search(r"```text\n(toy .*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    (run,) = read(from_text(shown[1]))
    assert len(run.iterations) == 2
    assert len(run.evaluations) == 1


def test_of_strange_lines_alike_one_that_tells_of_a_fault_is_found(toy: LineFormat) -> None:
    ended = "".join(f"a worker's exit code: -{code}\n" for code in (1, 2, 3, 9))
    (run,) = read(from_text(LOG + ended))
    assert [fault.text for fault in run.faults] == ["a worker's exit code: -9"]


def test_a_log_behind_many_lines_of_a_weaker_claim_is_found(toy: LineFormat) -> None:
    """Where the search goes on, lines that were seen with other numbers are left out, and new ones are not."""
    weak = "".join(f"|E2E latency={1 + number / 1e5:.5f}s |Gather latency=0.00s (0.00%)\n" for number in range(9000))
    assert len(weak) > 1 << 18
    assert readers.detect(from_text(weak)) == "deepspeed"
    assert readers.detect(from_text(weak + LOG)) == toy.name
