"""A directory as an input: every log in it once, whatever else lies beside."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from tests.builders import Truth, a_log

from stepwatch import collection
from stepwatch.collection import runs_in
from stepwatch.errors import NoIterations
from stepwatch.readers import READERS

BASE = Truth(max_iters=300, eval_interval=100)


def sources(path: Path) -> list[tuple[str, str, int]]:
    return [(run.source, run.format, len(run.iterations)) for run in runs_in(str(path)).runs]


def test_logs_of_several_trainers_are_found_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "train.log").write_text(a_log(BASE))
    (tmp_path / "llm.txt").write_text(READERS["llm.c"].example)
    (tmp_path / "notes.md").write_text("# what I did\n")
    (tmp_path / "train.py").write_text("print('iter 1: loss 2, time 3ms')\n" * 9)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "old.log").write_text(a_log(BASE))
    found = runs_in(str(tmp_path))
    assert [(run.source, run.format) for run in found.runs] == [("llm.txt", "llm.c"), ("a/b/train.log", "nanogpt")]
    assert found.passed_over == 2


def test_rotated_pieces_are_one_log_the_oldest_first(tmp_path: Path) -> None:
    lines = a_log(BASE).splitlines(keepends=True)
    third = len(lines) // 3
    (tmp_path / "train.log.2.gz").write_bytes(gzip.compress("".join(lines[:third]).encode()))
    (tmp_path / "train.log.1").write_text("".join(lines[third : 2 * third]))
    (tmp_path / "train.log").write_text("".join(lines[2 * third :]))
    assert sources(tmp_path) == [("train.log", "nanogpt", 31)]


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
    found = runs_in(str(tmp_path))
    assert [run.source for run in found.runs] == ["good.log"]
    assert [name for name, _ in found.failed] == ["untimed.log"]
    assert found.passed_over == 1


def test_nothing_to_read_is_told_with_the_number_of_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    with pytest.raises(NoIterations, match="looked at: 1"):
        runs_in(str(tmp_path))


def test_many_unrelated_files_are_passed_over(tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"{number}.txt").write_text(f"file {number}\n")
    (tmp_path / "z.log").write_text(a_log(BASE))
    found = runs_in(str(tmp_path))
    assert (len(found.runs), found.passed_over, found.more) == (1, 2000, False)


def test_a_search_without_end_is_cut_short_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MOST_FILES", 5)
    (tmp_path / "a.log").write_text(a_log(BASE))
    for number in range(20):
        (tmp_path / f"x{number}.txt").write_text("nothing\n")
    assert runs_in(str(tmp_path)).more


def test_a_link_that_leads_back_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(a_log(BASE))
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(sources(tmp_path)) == 1
