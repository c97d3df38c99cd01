"""The real crashes, interruptions and slow runs: what is said first of each."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import adapter
from tests.corpus.places import all_logs, runs_of

from stepwatch.advice import advice_on_log
from stepwatch.answers.from_logs import UserContext
from stepwatch.errors import StepwatchError
from stepwatch.i18n import say
from stepwatch.verdict import Status, Verdict, judge

PLACE = adapter.corpus()
needs_corpus = pytest.mark.skipif(
    PLACE is None, reason="no corpus of real logs: set STEPWATCH_CORPUS, or put it in ../shared/corpus"
)
# By the beginning of the name; the line that has to be quoted, where there is one.
ENDED = {
    "llm.c/02": (Status.CRASHED, "DUE TO TIME LIMIT"),
    "llm.c/03": (Status.CRASHED, "[CUDA ERROR] at file"),
    "nanochat/06": (Status.CRASHED, "RuntimeError: CUDA driver error: out of memory"),
    "metriclogger/03": (Status.STOPPED, "by hand after iteration 291"),
    "metriclogger/04": (Status.STOPPED, "by hand after iteration 11"),
    "timm/02_fabfish.tail": (Status.CRASHED, "job killed: walltime"),
    "tqdm-loop/03": (Status.STOPPED, "by hand"),
    "tqdm-loop/04": (Status.STOPPED, "by hand"),
    "unseen/olmo_training": (Status.CRASHED, "got signal: 15"),
    "wandb-binary/03": (Status.STOPPED, "by hand"),
    "nanogpt/025": (Status.STOPPED, "by hand after iteration 1,330"),
    "nanogpt/040": (Status.CRASHED, "Signal 15 (SIGTERM)"),
    "nanogpt/054": (Status.STOPPED, "by hand after iteration 760"),
    "nanogpt/071": (Status.STOPPED, "by hand after iteration 1,840"),
    "nanogpt/080": (Status.STOPPED, "by hand after iteration 176,064"),
    "unseen/tt_qiu_crashed": (Status.CRASHED, "RuntimeError: Cannot send a request"),
}
RUNNING = {
    "hf-trainer/01_fyh2001.head": (Status.UNSTEADY, "nine in ten between 869.9 ms and 3.45 s"),
    "hf-trainer/01_fyh2001.tail": (Status.UNSTEADY, "uneven"),
    "torchtitan/02": (Status.SLOW, "11.1 %"),
    "nanogpt/057": (Status.ASLEEP, "stood still"),
}
# A traceback before the run or in its middle, an error of the process that ends, a line of one rank.
SURVIVED = ("nanogpt/033", "nanogpt/037", "nanogpt/079", "llm.c/01", "megatron/01", "megatron/02", "nanogpt/048")


def logs(start: str) -> list[Path]:
    assert PLACE is not None
    room, _, name = start.partition("/")
    found = [path for path in (PLACE / room).iterdir() if path.name.startswith(name)]
    assert found, start
    return found


@cache
def verdicts(path: Path) -> list[Verdict]:
    """Without a clock: when the copies of the corpus were written says nothing of the runs."""
    found = []
    for run in runs_of(path):
        analysis = UserContext().analyse(run)
        if len(run.iterations):
            assert analysis.costs.step_s is None or analysis.costs.step_s.mid > 0
            assert analysis.goodput.wall_s > 0
        found.append(judge(analysis, advice_on_log(analysis)))
    return found


@needs_corpus
@pytest.mark.parametrize("start", [*ENDED, *RUNNING])
def test_a_real_run_gets_its_status_and_the_line_that_shows_it(start: str) -> None:
    status, quoted = (ENDED | RUNNING)[start]
    (path,) = logs(start)
    (found,) = verdicts(path)
    assert found.status is status
    assert quoted in say(found.text, "en")
    assert (found.line is not None) is (start in ENDED)


@needs_corpus
@pytest.mark.parametrize("start", SURVIVED)
def test_errors_that_the_run_survived_are_no_crash(start: str) -> None:
    for path in logs(start):
        assert all(found.status not in (Status.CRASHED, Status.STOPPED) for found in verdicts(path))


@needs_corpus
def test_no_other_log_of_the_corpus_is_said_to_have_ended_badly() -> None:
    assert PLACE is not None
    ended = set()
    for path in all_logs(PLACE):
        if path.suffix == ".tsv":
            continue
        try:
            found = verdicts(path)
        except StepwatchError:  # refused, in a line of its own
            continue
        if any(each.status in (Status.CRASHED, Status.STOPPED, Status.DIVERGED) for each in found):
            ended.add(next((start for start in ENDED if str(path.relative_to(PLACE)).startswith(start)), path.name))
    assert ended == set(ENDED)
