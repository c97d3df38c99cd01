"""nanoswe: nanochat's descendant, whose clock shows what its times leave out."""

from __future__ import annotations

import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.readers import read
from stepwatch.readers.formats.nanoswe import FORMAT
from stepwatch.run import Run
from stepwatch.sources import from_text

HEADER = """\
[2026-01-10 07:58:00] system info:
    world_size: 8
    gpu_name: NVIDIA B200
"""


def line(number: int, second: int) -> str:
    clock = f"[2026-01-10 {8 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}]"
    return f"{clock} step {number:06d} | loss 3.204117 | lrm 1.0000 | dt_ms 7001.8\n"


def the_run(text: str) -> Run:
    (run,) = read(from_text(text))
    return run


def test_lines_clocks_and_header_are_read() -> None:
    run = the_run(HEADER + "".join(line(n, 7 * n) for n in range(50)))
    assert run.format == "nanoswe"
    assert run.iterations.time_s.round(5).tolist() == [7.0018] * 50
    assert run.iterations.stamp_s[9] - run.iterations.stamp_s[0] == 63
    assert run.settings.count("world_size") == 8
    assert run.gpu_text == "NVIDIA B200"
    assert run.has_header


def test_what_a_checkpoint_took_comes_from_the_clock() -> None:
    text = HEADER
    for n in range(60):
        second = 7 * n + 30 * (n > 20) + 30 * (n > 40)
        text += line(n, second)
        if n in (20, 40):
            text += f"[2026-01-10 08:0{n // 10}:00] saved checkpoint model_{n:06d} -> out/pt\n"
    run = the_run(text)
    assert [save.at for save in run.checkpoints] == [20, 40]
    cost = analyse(run).costs.checkpoint_s
    assert cost is not None
    assert cost.mid == pytest.approx(30, abs=1)


def test_half_a_line_is_named() -> None:
    run = the_run("".join(line(n, 7 * n) for n in range(5)) + "[2026-01-10 08:00:40] step 000005 | loss 3 | dt_ms 7")
    assert len(run.iterations) == 5
    assert run.unread_count == 1


def test_its_example_is_read() -> None:
    run = the_run(example_of(FORMAT.name))
    assert len(run.iterations) == 2
    assert [save.at for save in run.checkpoints] == [101]
