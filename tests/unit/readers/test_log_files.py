"""A directory as an input: every log in it once, whatever else lies beside."""

from __future__ import annotations

import builtins
import bz2
import gzip
import lzma
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders import Truth, a_log
from tests.event_files import scalar, start
from tools.formats_page import example_of

from stepwatch.errors import NoIterations, NothingRead, UnreadableInput
from stepwatch.readers import collection
from stepwatch.readers.collection import looks_like_log, runs_in, sniffs_of
from stepwatch.readers.formats import FORMATS
from stepwatch.readers.log_files import ReadingOptions, RotatedLog, logs_among
from stepwatch.readers.reading import read_all
from stepwatch.sources import from_text

BASE = Truth(max_iters=300, eval_interval=100)


def event_file(steps: range, after_s: float = 0.0) -> bytes:
    begin_s = 1_700_000_000.0 + after_s
    return start(begin_s) + b"".join(scalar(begin_s + step, step, "train/loss", 3.0) for step in steps)


def sources(path: Path) -> list[tuple[str, str, int]]:
    return [(run.source, run.format, len(run.iterations)) for run in runs_in(str(path), ReadingOptions()).runs]


def test_logs_of_several_trainers_are_found_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "train.log").write_text(a_log(BASE))
    (tmp_path / "llm.txt").write_text(example_of("llm.c"))
    (tmp_path / "notes.md").write_text("# what I did\n")
    (tmp_path / "train.py").write_text("print('iter 1: loss 2, time 3ms')\n" * 9)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "old.log").write_text(a_log(BASE))
    found = runs_in(str(tmp_path), ReadingOptions())
    assert [(run.source, run.format) for run in found.runs] == [("llm.txt", "llm.c"), ("a/b/train.log", "nanogpt")]
    assert found.passed_over == 2


def test_rotated_pieces_are_one_log_the_oldest_first(tmp_path: Path) -> None:
    lines = a_log(BASE).splitlines(keepends=True)
    third = len(lines) // 3
    (tmp_path / "train.log.2.gz").write_bytes(gzip.compress("".join(lines[:third]).encode()))
    (tmp_path / "train.log.1").write_text("".join(lines[third : 2 * third]))
    (tmp_path / "train.log").write_text("".join(lines[2 * third :]))
    assert sources(tmp_path) == [("train.log", "nanogpt", 31)]


def cut(text: str, parts: int) -> list[str]:
    lines = text.splitlines(keepends=True)
    size = -(-len(lines) // parts)
    return ["".join(lines[begin : begin + size]) for begin in range(0, len(lines), size)]


@pytest.mark.parametrize(
    "names",
    [
        ["train.log-20240101", "train.log-20240102.gz", "train.log"], ["train.2.log", "train.1.log", "train.log"],
        ["train.log.2024-01-01", "train.log.2024-01-02", "train.log"], ["x.log.00", "x.log.01", "x.log.02"],
        ["train.log.2.xz", "train.log.1.bz2", "train.log"],
    ],
)  # fmt: skip
def test_pieces_are_joined_however_they_are_numbered(names: list[str], tmp_path: Path) -> None:
    packed: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress
    }  # fmt: skip
    for name, text in zip(names, cut(a_log(BASE), 3), strict=True):
        (tmp_path / name).write_bytes(packed.get(Path(name).suffix, bytes)(text.encode()))
    assert sources(tmp_path) == [(names[-1], "nanogpt", 31)]


def test_pieces_that_were_named_are_joined_in_their_order(tmp_path: Path) -> None:
    names = ["train.log.2", "train.log.1", "train.log"]
    for name, text in zip(names, cut(a_log(BASE), 3), strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "other.log").write_text(a_log(BASE))
    given = [str(tmp_path / name) for name in ("train.log.1", "other.log", "train.log", "train.log.2")]
    whole, other = logs_among(given, ReadingOptions())
    assert [Path(path).name for path in whole.paths] == names
    assert other.paths == (str(tmp_path / "other.log"),)
    assert [len(run.iterations) for run in whole.runs(ReadingOptions())] == [31]


@pytest.mark.parametrize("header", [True, False])
def test_jobs_with_names_like_pieces_stay_apart(tmp_path: Path, header: bool) -> None:
    """A sweep: all begin at iteration 0."""
    for number in (1, 2, 3):
        truth = replace(BASE, step_s=0.1 * number, seed=number, header=header)
        (tmp_path / f"job.out.{number}").write_text(a_log(truth))
    assert [name for name, _, _ in sources(tmp_path)] == ["job.out.1", "job.out.2", "job.out.3"]


def test_a_crashed_job_is_no_piece_of_the_next(tmp_path: Path) -> None:
    crash = "tokens per iteration will be: 16,384\nTraceback (most recent call last):\nKeyError: 1\n"
    (tmp_path / "job.out.2").write_text(crash)
    (tmp_path / "job.out.1").write_text(a_log(replace(BASE, header=False)))
    assert [name for name, _, _ in sources(tmp_path)] == ["job.out.1", "job.out.2"]


def test_a_missing_piece_is_told_with_its_iterations(tmp_path: Path) -> None:
    first, _, last = cut(a_log(replace(BASE, max_iters=3000)), 3)
    (tmp_path / "train.log.2").write_text(first)
    (tmp_path / "train.log").write_text(last)
    found = runs_in(str(tmp_path), ReadingOptions())
    assert [run.source for run in found.runs] == ["train.log"]
    begin, end = (re.findall(r"iter (\d+):", text) for text in (first, last))
    assert found.gaps == (("train.log", int(end[0]) - int(begin[-1]) - 10),)


def test_the_newest_piece_may_be_empty(tmp_path: Path) -> None:
    older, newer = cut(a_log(BASE), 2)
    (tmp_path / "train.log.2").write_text(older)
    (tmp_path / "train.log.1").write_text(newer)
    (tmp_path / "train.log").write_text("")
    assert sources(tmp_path) == [("train.log", "nanogpt", 31)]


def test_a_long_header_hides_no_log(tmp_path: Path) -> None:
    long = "# arguments, one to a line, and nothing else for a long time\n" * 5000
    (tmp_path / "plain.log").write_text(long + a_log(BASE))
    (tmp_path / "packed.log.gz").write_bytes(gzip.compress((long + a_log(BASE)).encode()))
    assert [name for name, _, _ in sources(tmp_path)] == ["packed.log.gz", "plain.log"]


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in FORMATS  # but for files that hold nothing else
        if name not in ("tensorboard", "hf-state", "wandb", "wandb-file", "trackio", "mlflow", "stepwatch")
    ],
)
def test_a_log_of_any_trainer_is_found_in_the_midst_of_other_lines(name: str, tmp_path: Path) -> None:
    other = "one more line that tells nothing at all, as there are many\n" * 1500
    (tmp_path / "x.log").write_text(other + f"{example_of(name)}\n" * 3 + other[: len(other) // 4])
    assert looks_like_log(str(tmp_path / "x.log"), sniffs_of(ReadingOptions()))


def test_event_files_are_known_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "02_run.bin").write_bytes(event_file(range(1, 50)))
    (tmp_path / "model.bin").write_bytes(bytes(range(256)) * 400)
    found = runs_in(str(tmp_path), ReadingOptions())
    assert [(run.source, run.format) for run in found.runs] == [("02_run.bin", "tensorboard")]
    assert found.passed_over == 1


def test_the_parts_of_a_keras_run_are_one_run(tmp_path: Path) -> None:
    (tmp_path / "run" / "train").mkdir(parents=True)
    (tmp_path / "run" / "train" / "events.out.tfevents.1.h").write_bytes(event_file(range(1, 50)))
    assert [name for name, _, _ in sources(tmp_path)] == ["run"]


def test_event_files_of_two_runs_in_one_place_keep_their_own_settings(tmp_path: Path) -> None:
    """A run is a process start, also where it goes on from a checkpoint."""
    begin_s = 1_700_000_000.0
    ended = scalar(begin_s + 9_000, 300, "train/train_runtime", 300.0)
    (tmp_path / "events.out.tfevents.1700000000.h.1.0").write_bytes(event_file(range(1, 200)))
    (tmp_path / "events.out.tfevents.1700000400.h.2.0").write_bytes(event_file(range(200, 400), 400.0))
    assert [len(run.iterations) for run in RotatedLog((str(tmp_path),)).runs(ReadingOptions())] == [199, 200]
    (tmp_path / "events.out.tfevents.1700001000.h.3.0").write_bytes(event_file(range(1, 301), 1000.0) + ended)
    *others, last = RotatedLog((str(tmp_path),)).runs(ReadingOptions())
    assert len(others) == 2
    assert not any("max_iters" in run.settings for run in others)
    assert last.settings.count("max_iters") == 300


def test_what_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.log").write_text(a_log(BASE))
    for name in ("file.log", "place"):
        (tmp_path / name).mkdir() if name == "place" else (tmp_path / name).write_text(a_log(BASE))

    def refusing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *rest: Any) -> Any:
            if str(path).endswith(("file.log", "place")):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *rest)

        return call

    monkeypatch.setattr(builtins, "open", refusing(open))
    monkeypatch.setattr(os, "scandir", refusing(os.scandir))  # root may read everything
    found = runs_in(str(tmp_path), ReadingOptions())
    assert [run.source for run in found.runs] == ["good.log"]
    assert sorted(name for name, _ in found.failed) == ["file.log", "place"]
    assert found.passed_over == 0


def test_lines_like_an_example_are_found(tmp_path: Path) -> None:
    (tmp_path / "own.log").write_text("".join(f"it {n} | 0.3{n % 10} s\n" for n in range(1, 60)))
    (tmp_path / "other.txt").write_text("nothing\n")
    found = runs_in(str(tmp_path), ReadingOptions(like="it 12 | 0.34 s"))
    assert [(run.source, len(run.iterations)) for run in found.runs] == [("own.log", 59)]


def test_a_format_that_is_not_the_log_s_own_is_told_with_it() -> None:
    with pytest.raises(NoIterations, match=r"no iteration of the format llm\.c; the log looks like nanogpt"):
        ReadingOptions("llm.c").read(from_text(a_log(BASE)))


def test_headerless_pieces_are_in_the_order_of_their_iterations(tmp_path: Path) -> None:
    (tmp_path / "z.log").write_text(a_log(replace(BASE, header=False)))
    (tmp_path / "a.log").write_text(a_log(replace(BASE, header=False, first_iter=300, max_iters=600)))
    assert [name for name, _, _ in sources(tmp_path)] == ["z.log", "a.log"]


def test_other_headerless_logs_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(a_log(replace(BASE, header=False, first_iter=900, max_iters=1200)))
    (tmp_path / "z.log").write_text(a_log(replace(BASE, header=False)))
    assert [name for name, _, _ in sources(tmp_path)] == ["a.log", "z.log"]


def test_numbered_logs_of_different_runs_stay_apart(tmp_path: Path) -> None:
    for number in (3, 7):
        (tmp_path / f"job.{number}").write_text(a_log(replace(BASE, seed=number)))
    assert [name for name, _, _ in sources(tmp_path)] == ["job.3", "job.7"]


def test_the_pieces_of_a_resumed_run_are_in_the_order_of_their_iterations(tmp_path: Path) -> None:
    (tmp_path / "z.log").write_text(a_log(BASE))
    (tmp_path / "a.log").write_text(a_log(replace(BASE, first_iter=300, max_iters=600)))
    assert [name for name, _, _ in sources(tmp_path)] == ["z.log", "a.log"]


def test_a_log_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text(a_log(BASE))
    untimed = "{'loss': 1.692, 'grad_norm': 0.61, 'learning_rate': 9e-05, 'epoch': 0.05}\n"
    (tmp_path / "untimed.log").write_text(untimed * 30)
    (tmp_path / "packed.log.gz").write_bytes(b"\x1f\x8b" + b"no gzip at all" * 40)
    found = runs_in(str(tmp_path), ReadingOptions())
    assert [run.source for run in found.runs] == ["good.log"]
    assert [name for name, _ in found.failed] == ["untimed.log"]
    assert found.passed_over == 1


def test_nothing_to_read_is_told_with_the_number_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    with pytest.raises(NoIterations, match="looked at: 1"):
        runs_in(str(tmp_path), ReadingOptions())


def test_many_unrelated_files_are_passed_over(tmp_path: Path) -> None:
    for number in range(500):
        (tmp_path / f"{number}.txt").write_text(f"file {number}\n")
    (tmp_path / "z.log").write_text(a_log(BASE))
    found = runs_in(str(tmp_path), ReadingOptions())
    assert (len(found.runs), found.passed_over, found.more) == (1, 500, False)


def test_a_search_without_end_is_cut_short_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MOST_FILES", 5)
    (tmp_path / "a.log").write_text(a_log(BASE))
    for number in range(20):
        (tmp_path / f"x{number}.txt").write_text("nothing\n")
    assert runs_in(str(tmp_path), ReadingOptions()).more


def test_a_link_that_leads_back_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(a_log(BASE))
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(sources(tmp_path)) == 1


# --- whatever is named, at once ---------------------------------------------------------------------------------


def test_files_directories_and_sources_are_read_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text(a_log(BASE))
    (tmp_path / "logs" / "notes.txt").write_text("nothing")
    (tmp_path / "b.log").write_text(a_log(BASE))
    found = read_all([str(tmp_path / "b.log"), str(tmp_path / "logs"), from_text(a_log(BASE), "pasted")])
    assert [run.source for run in found.runs] == ["b.log", "a.log", "pasted"]
    assert [notice.what.in_english() for notice in found.notices] == ["1 other file is not a log"]
    assert not found.gaps


def test_a_bad_log_among_several_is_a_notice_and_alone_the_error(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(a_log(BASE))
    missing = str(tmp_path / "missing.log")
    found = read_all([str(tmp_path / "a.log"), missing])
    assert len(found.runs) == 1
    assert [(notice.is_failure, notice.what.in_english()) for notice in found.notices] == [
        (True, "there is no file “missing.log”")
    ]
    with pytest.raises(UnreadableInput):
        read_all([missing])
    with pytest.raises(NothingRead) as nothing:
        read_all([missing, str(tmp_path / "gone.log")])
    assert len(nothing.value.notices) == 2


def test_a_missing_piece_is_said_of_files_that_are_named(tmp_path: Path) -> None:
    lines = [f"iter {n}: loss 4.0, time {100 + n % 3}.00ms, mfu 5.00%\n" for n in range(400)]
    for number, begin, end in ((3, 0, 100), (1, 200, 300), (0, 300, 400)):
        (tmp_path / (f"x.log.{number}" if number else "x.log")).write_text("".join(lines[begin:end]))
    found = read_all([str(tmp_path / name) for name in ("x.log", "x.log.1", "x.log.3")])
    assert [len(run.iterations) for run in found.runs] == [300]
    assert [gap.params["count"] for gap in found.gaps] == [100]
