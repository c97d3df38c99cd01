"""Several ranks of one run: read together, and the slow one named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.recorded import Record, a_record, several_ranks

from stepwatch.advice import advice_on_log
from stepwatch.analysis import analyse
from stepwatch.analysis.ranks import Ranks, find_ranks
from stepwatch.cli import main
from stepwatch.readers import joined_ranks, read
from stepwatch.readers.collection import runs_in
from stepwatch.readers.log_files import ReadingOptions
from stepwatch.run import Run
from stepwatch.sources import from_file, from_text

EVEN = [0.2] * 8


def write(place: Path, records: Sequence[Record], name: str = "run") -> Path:
    for record in records:
        rank = "" if record.planted.rank == 0 else f".rank{record.planted.rank}"
        (place / f"{name}{rank}.jsonl").write_text(record.text)
    return place / f"{name}.jsonl"


def the_run(records: Sequence[Record]) -> Run:
    """All files one after the other, as by cat."""
    (run,) = read(from_text("".join(record.text for record in records)))
    return run


def ranks_of(own_s: Sequence[float | Callable[[int], float]], **planted: Any) -> Ranks:
    return find_ranks(the_run(several_ranks(own_s, **planted)))


def codes(records: Sequence[Record]) -> dict[str, str]:
    return {finding.code: finding.severity for finding in analyse(the_run(records)).findings}


# --- one run ---------------------------------------------------------------------------------------------------------


def test_the_files_beside_that_of_rank_0_belong_to_it(tmp_path: Path) -> None:
    path = write(tmp_path, several_ranks(EVEN))
    write(tmp_path, [a_record()], "running")
    (run,) = read(from_file(path))
    assert [rank.rank for rank in run.ranks] == list(range(8))
    assert run.rank == 0
    assert run.distributed
    assert run.iterations.time_s.tolist() == run.ranks[0].time_s.tolist()


def test_a_directory_has_one_row_for_all_ranks(tmp_path: Path) -> None:
    write(tmp_path, several_ranks(EVEN))
    write(tmp_path, [a_record()], "other")
    found = runs_in(str(tmp_path), ReadingOptions())
    assert [(run.source, len(run.ranks)) for run in found.runs] == [("other.jsonl", 0), ("run.jsonl", 8)]
    assert found.passed_over == 0


def test_ranks_in_directories_of_their_own_are_one_run(tmp_path: Path) -> None:
    for record in several_ranks(EVEN[:3]):
        place = tmp_path / f"node{record.planted.rank}"
        place.mkdir()
        write(place, [record])
    (run,) = runs_in(str(tmp_path), ReadingOptions()).runs
    assert len(run.ranks) == 3


def test_logs_of_ranks_that_are_no_records_stay_logs(tmp_path: Path) -> None:
    log = "".join(f"iter {n}: loss 4.0, time 100.00ms, mfu 10.00%\n" for n in range(20))
    (tmp_path / "train.log").write_text(log)
    (tmp_path / "train.rank1.log").write_text(log)
    assert len(runs_in(str(tmp_path), ReadingOptions()).runs) == 2


def test_files_handed_in_together_are_one_run(tmp_path: Path) -> None:
    write(tmp_path, several_ranks(EVEN[:4]))
    names = sorted(str(path) for path in tmp_path.iterdir())
    result = CliRunner().invoke(main, ["explain", *names, "--json", "--no-iterations"])
    (run,) = json.loads(result.stdout)["runs"]
    assert run["ranks"]["world_size"] == 4
    assert [each["rank"] for each in run["ranks"]["each"]] == [0, 1, 2, 3]


def test_each_restart_finds_its_ranks(tmp_path: Path) -> None:
    records = several_ranks(EVEN[:3])
    again = several_ranks(EVEN[:3], steps=40)
    for record, more in zip(records, again, strict=True):
        later = Record(type(more.planted)(**{**vars(more.planted), "started": record.clock + 100, "seed": 9}))
        record.lines += later.lines
    runs = read(from_file(write(tmp_path, records)))
    assert [[len(rank.number) for rank in run.ranks] for run in runs] == [[60] * 3, [40] * 3]


def test_records_of_another_day_are_another_run() -> None:
    one, other = several_ranks(EVEN[:2], offset_s=86400)
    runs = [*read(from_text(one.text)), *read(from_text(other.text))]
    assert len(joined_ranks(runs)) == 2


def test_one_rank_alone_says_nothing_of_the_others() -> None:
    run = the_run(several_ranks(EVEN)[3:4])
    assert run.rank == 3
    assert run.ranks == ()
    assert "rank_missing" not in codes(several_ranks(EVEN)[3:4])


def test_a_rotated_rank_is_whole(tmp_path: Path) -> None:
    records = several_ranks(EVEN[:2])
    path = write(tmp_path, records)
    lines = records[1].lines
    (tmp_path / "run.rank1.jsonl.1").write_text("\n".join(lines[:30]) + "\n")
    continued = lines[0].removesuffix("}") + ',"continued":true}'
    (tmp_path / "run.rank1.jsonl").write_text("\n".join([continued, *lines[30:]]) + "\n")
    (run,) = read(from_file(path))
    assert len(run.ranks[1].number) == 60
    (found,) = runs_in(str(tmp_path), ReadingOptions()).runs
    assert len(found.ranks[1].number) == 60


# --- which is slow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("slower", [0.04, 0.25, 2.0])
def test_the_slow_rank_is_named_with_its_skew(count: int, slower: float) -> None:
    own = [0.2] * (count - 1) + [0.2 * (1 + slower)]
    ranks = ranks_of(own, steps=200, noise=0.01)
    assert ranks.chronic
    assert ranks.slowest == count - 1
    assert ranks.skew is not None
    assert ranks.skew.mid == pytest.approx(slower, abs=0.012)
    assert ranks.per_step_s == pytest.approx(0.2 * slower, abs=0.0025)
    assert ranks.lost_s == pytest.approx(200 * 0.2 * slower, rel=0.15)
    waits = {row.rank: row.wait_s or 0.0 for row in ranks.rows}
    assert min(waits, key=lambda rank: waits[rank]) == count - 1


def test_findings_on_a_slow_rank() -> None:
    found = codes(several_ranks([*EVEN[:7], 0.25]))
    assert found["slow_rank"] == "warning"
    assert "ranks_even" not in found


def test_even_ranks_are_said_to_be_even() -> None:
    found = codes(several_ranks(EVEN))
    assert found["ranks_even"] == "info"
    assert not {"slow_rank", "rank_hiccup", "rank_missing", "rank_ended"} & set(found)


def test_noise_alone_makes_no_rank_slow() -> None:
    for seed in range(20):
        records = [
            a_record(steps=50, rank=rank, world_size=8, wait_s=0.01, noise=0.2, seed=100 * seed + rank)
            for rank in range(8)
        ]
        assert not find_ranks(the_run(records)).chronic


def test_a_slow_rank_is_found_in_noise() -> None:
    records = [
        a_record(steps=400, rank=rank, world_size=4, wait_s=0.01, noise=0.3, seed=rank, step_s=0.2 if rank else 0.26)
        for rank in range(4)
    ]
    ranks = find_ranks(the_run(records))
    assert (ranks.slowest, ranks.chronic) == (0, True)
    assert ranks.rows[0].slowest < 0.6  # in many steps another one was slower by chance


def test_a_step_that_is_slow_everywhere_is_nobodys_hiccup() -> None:
    ranks = ranks_of([lambda number: 2.0 if number == 30 else 0.2] * 4)
    assert ranks.hiccups == ()


def test_one_off_is_no_chronic_slowness() -> None:
    ranks = ranks_of([0.2, 0.2, lambda number: 0.9 if number in (17, 44) else 0.2, 0.2])
    assert not ranks.chronic
    assert [(hiccup.rank, hiccup.at) for hiccup in ranks.hiccups] == [(2, 17), (2, 44)]
    assert [hiccup.lost_s for hiccup in ranks.hiccups] == pytest.approx([0.7, 0.7], rel=0.05)


def test_a_rank_without_a_record_is_missed() -> None:
    found = codes(several_ranks(EVEN)[:7])
    assert found["rank_missing"] == "notice"
    assert find_ranks(the_run(several_ranks(EVEN)[:7])).missing == (7,)


def test_a_rank_that_ended_early_is_told_and_hides_no_other() -> None:
    records = several_ranks([0.2, 0.2, 0.2, 0.3])
    records[1].lines = records[1].lines[:20]
    ranks = find_ranks(the_run(records))
    assert [row.rank for row in ranks.ended] == [1]
    assert ranks.slowest == 3
    assert ranks.chronic
    assert codes(records)["rank_ended"] == "warning"


def test_without_recorded_waiting_evenness_is_not_claimed() -> None:
    records = several_ranks(EVEN[:3])
    for record in records:
        record.lines = [line.replace('"wait_s":0.000000,', "") for line in record.lines]
    assert not find_ranks(the_run(records)).waits_known
    texts = [finding.message.key for finding in analyse(the_run(records)).findings if finding.code == "ranks_even"]
    assert "was not recorded" in texts[0]


def test_steps_are_matched_by_number() -> None:
    records = several_ranks([0.2, 0.2, 0.3], steps=50)
    records[2].lines = [line for line in records[2].lines if not line.startswith('{"step":1')]
    ranks = find_ranks(the_run(records))
    assert ranks.slowest == 2
    assert ranks.skew is not None
    assert ranks.skew.mid == pytest.approx(0.5, abs=0.02)


def test_ranks_without_a_step_in_common_are_not_compared() -> None:
    records = several_ranks([0.2, 0.2], steps=4)
    records[1].lines = [line.replace('"step":', '"step":90') for line in records[1].lines]
    ranks = find_ranks(the_run(records))
    assert ranks.skew is None
    assert np.isfinite([row.steps for row in ranks.rows]).all()


def test_the_full_report_shows_the_ranks(tmp_path: Path) -> None:
    path = write(tmp_path, several_ranks([0.2, 0.2, 0.25]))
    for form in ("--full", "--md"):
        result = CliRunner().invoke(main, ["explain", str(path), form, "--lang", "en"])
        assert result.exit_code == 0, result.output
        assert "The ranks side by side" in result.stdout
        assert "Rank 2 is the slowest" in " ".join(result.stdout.split())


def test_advice_on_data_and_on_a_slow_rank() -> None:
    records = several_ranks([0.2, 0.2, 0.26], data_s=0.05, settings={"max_iters": 20000})
    advised = advice_on_log(analyse(the_run(records)))
    assert advised is not None
    found = {advice.rule: advice.saves_s for advice in advised.advice}
    assert found["look_at_rank"].holds(20000 * 0.06)
    assert found["feed_faster"].holds(0.75 * 20000 * 0.05)
