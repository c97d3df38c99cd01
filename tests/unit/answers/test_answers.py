"""The use cases: what comes back as a value, whoever asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import Truth, a_log

from stepwatch.answers import pasted
from stepwatch.answers.from_logs import ExplainRequest, compare, explain, shown
from stepwatch.answers.from_plans import AdviseRequest, EstimateRequest, advise, estimate
from stepwatch.errors import NoIterations, NoSuchRun, NothingRead, UnreadableInput
from stepwatch.i18n import say

LOG = a_log(Truth(max_iters=1000, step_s=0.2))
CONFIG = pasted("n_layer = 6\nn_head = 6\nn_embd = 384\nbatch_size = 12\n")


@pytest.fixture
def log(tmp_path: Path) -> str:
    (tmp_path / "train.log").write_text(LOG)
    return str(tmp_path / "train.log")


# --- explain ---------------------------------------------------------------------------------------------------------


def test_a_file_and_its_text_are_explained_alike(log: str) -> None:
    found, same = (explain(ExplainRequest(logs=(source,), gpu="4070")) for source in (log, pasted(LOG, "train.log")))
    assert found.analyses[0].costs == same.analyses[0].costs
    assert found.inputs == same.inputs == ("train.log",)
    assert found.runs[0].advice is not None


def test_a_log_alone_that_cannot_be_read_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput):
        explain(ExplainRequest(logs=(str(tmp_path / "nowhere.log"),)))


def test_a_bad_log_among_several_is_a_notice(log: str, tmp_path: Path) -> None:
    report = explain(ExplainRequest(logs=(log, str(tmp_path / "nowhere.log"))))
    assert len(report.runs) == 1
    assert [notice.is_failure for notice in report.notices] == [True]
    assert [say(notice.what) for notice in report.notices] == ["there is no file “nowhere.log”"]


def test_what_was_noticed_is_said_before_a_later_error(log: str, tmp_path: Path) -> None:
    with pytest.raises(NoSuchRun) as caught:
        explain(ExplainRequest(logs=(log, str(tmp_path / "nowhere.log")), run=7))
    assert caught.value.count == 1
    assert [notice.is_failure for notice in caught.value.notices] == [True]


def test_where_nothing_can_be_read_every_reason_is_kept(tmp_path: Path) -> None:
    with pytest.raises(NothingRead) as caught:
        explain(ExplainRequest(logs=(str(tmp_path / "a.log"), str(tmp_path / "b.log"))))
    assert len(caught.value.notices) == 2


def test_files_that_are_no_logs_do_not_make_a_report_incomplete(log: str) -> None:
    place = Path(log).parent
    (place / "notes.txt").write_text("nothing\n")
    report = explain(ExplainRequest(logs=(str(place),)))
    assert report.directory
    assert [say(notice.what) for notice in report.notices] == ["1 other file is not a log"]
    assert not any(notice.is_failure for notice in report.notices)


def test_the_user_wins_over_the_log_and_the_log_over_the_config() -> None:
    request = ExplainRequest(
        logs=(pasted(LOG),), config=pasted("max_iters = 7\neval_iters = 9\n"), settings=("eval_interval=125",)
    )
    settings = explain(request).analyses[0].run.settings
    assert settings["max_iters"].value == 1000
    assert settings["eval_interval"].value == 125


@pytest.mark.parametrize(
    ("name", "said"), [("a/b.log", "a/b.log"), ("/home/me/b.log", "b.log"), ("../b.log", "b.log"), ("-", "-")]
)
def test_a_place_in_somebodys_home_is_not_shown(name: str, said: str) -> None:
    assert shown(name) == said


# --- estimate and advise ---------------------------------------------------------------------------------------------


def test_a_log_can_be_estimated_by_its_header() -> None:
    found = estimate(EstimateRequest(config=pasted(LOG), gpu="4070"))
    assert found.plan.workload == estimate(EstimateRequest(config=pasted(LOG + LOG), gpu="4070")).plan.workload


def test_the_vocabulary_of_a_dataset_is_asked_for_where_it_is_not_known() -> None:
    asked = []

    def size(dataset: str) -> int:
        asked.append(dataset)
        return 65

    found = estimate(EstimateRequest(settings=("dataset=shake",), gpu="4070", vocabulary=size))
    assert found.plan.settings["vocab_size"].value == 65
    estimate(EstimateRequest(settings=("dataset=shake", "vocab_size=90"), gpu="4070", vocabulary=size))
    assert asked == ["shake"]


def test_advice_is_on_a_log_on_a_config_or_a_recommendation() -> None:
    assert advise(AdviseRequest(log=pasted(LOG), gpu="4070")).advice is not None
    assert advise(AdviseRequest(config=CONFIG, gpu="4070")).advice is not None
    assert advise(AdviseRequest(gpu="4070")).recommended is not None


def test_advice_on_a_log_says_what_explaining_it_would() -> None:
    found = advise(AdviseRequest(log=pasted(LOG), gpu="4070", settings=("max_iters=700",)))
    assert any("--set wins" in say(remark) for remark in found.remarks)


def test_a_model_that_no_batch_size_fits_gets_no_advice() -> None:
    huge = ("n_layer=96", "n_head=96", "n_embd=12288")
    with pytest.raises(Exception, match="fit"):
        advise(AdviseRequest(config=CONFIG, settings=huge, gpu="t4"))


# --- compare ---------------------------------------------------------------------------------------------------------


def test_the_log_without_iterations_is_named() -> None:
    before, after = (ExplainRequest(logs=(pasted(LOG, "a.log"),)), ExplainRequest(logs=(pasted("hello", "b.log"),)))
    with pytest.raises(NoIterations) as caught:
        compare(before, after)
    assert str(caught.value).startswith("b.log: no iteration found")
    assert say(caught.value.what, "de").startswith("b.log: Keine Iteration")


def test_of_several_runs_the_longest_is_compared_and_said() -> None:
    several = pasted(LOG + a_log(Truth(max_iters=3000, step_s=0.2)), "b.log")
    found = compare(ExplainRequest(logs=(pasted(LOG, "a.log"),)), ExplainRequest(logs=(several,)))
    assert len(found.after.run.iterations) > len(found.before.run.iterations)
    assert any("--run B:1" in say(note) for note in found.notes)
