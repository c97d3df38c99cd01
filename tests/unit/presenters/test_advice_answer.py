"""Advice as it is said: headline, list, before and after, what to type; on a terminal, as a note and as JSON."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from tests.builders import Truth, a_log

from stepwatch import i18n
from stepwatch.advice import AdviceList, advice_on_log, advice_on_plan
from stepwatch.advice.recommended import recommend
from stepwatch.analysis import analyse
from stepwatch.answers.from_logs import UserContext
from stepwatch.estimator.plan import plan
from stepwatch.gpus import find_gpu
from stepwatch.i18n import LANGUAGES, say
from stepwatch.presenters import View, render
from stepwatch.presenters import advice_answer as sentences
from stepwatch.presenters.advice_answer import command_of
from stepwatch.presenters.document import Code
from stepwatch.presenters.markdown import escaped
from stepwatch.readers import read
from stepwatch.report import AdviceReport
from stepwatch.settings import Origin, Settings, Value
from stepwatch.sources import from_text

GPT2: dict[str, Value] = {
    "n_layer": 12, "n_head": 12, "n_embd": 768, "batch_size": 8, "gradient_accumulation_steps": 64, "max_iters": 12000,
    "eval_interval": 500, "log_interval": 10,
}  # fmt: skip
TINY: dict[str, Value] = {
    "n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 64, "vocab_size": 65, "batch_size": 1,
    "gradient_accumulation_steps": 64, "max_iters": 100_000, "eval_interval": 2000,
}  # fmt: skip


def on_plan(gpu: str = "4070", cards: int | None = None, **values: Value) -> AdviceList:
    return advice_on_plan(plan(Settings.of(Origin.USER, {**GPT2, **values}), find_gpu(gpu)), cards=cards)


def on_log(truth: Truth, gpu: str | None = None) -> AdviceList | None:
    run = read(from_text(a_log(truth)))[0]
    return advice_on_log(analyse(run, find_gpu(gpu) if gpu else None, "user" if gpu else None))


def recommended(gpu: str = "4070", n_gpus: int | None = None, **values: Value) -> AdviceReport:
    return AdviceReport(recommended=recommend(Settings.of(Origin.USER, values), find_gpu(gpu), n_gpus=n_gpus))


def on_terminal(answer: AdviceReport, language: str = "en") -> str:
    return str(render(answer, "terminal", language, View(colour=False)))


def as_note(answer: AdviceReport, language: str = "en") -> str:
    return str(render(answer, "md", language))


def document(answer: AdviceReport, language: str = "en") -> dict[str, Any]:
    return dict(json.loads(render(answer, "json", language)))


LONG_LOG = on_log(Truth(max_iters=20000))
NOTHING = on_plan(eval_interval=2000)
MANY = on_plan("t4", 4, compile=False, flash=False, fused=False, vocab_size=50257, eval_interval=20, batch_size=4)


# --- the list ---------------------------------------------------------------------------------------------------


def test_the_headline_tells_how_much_shorter_the_run_becomes() -> None:
    assert LONG_LOG is not None
    headline = sentences.headline(LONG_LOG)
    assert headline.n == 1
    assert headline.params["after"] == pytest.approx(LONG_LOG.before.total_s.mid - LONG_LOG.saves_s.mid)
    assert 0 < headline.params["share"] < 1


def test_nothing_worth_changing_is_said_with_the_reason() -> None:
    said, why = sentences.nothing(NOTHING)
    assert "Nothing" in said.key
    for form in (on_terminal, as_note):
        assert "no change found saves" in form(AdviceReport(advice=NOTHING))
        assert "no change found saves" not in form(AdviceReport(advice=LONG_LOG))
    assert 0 <= why.params["share"] < 1


def test_a_share_of_lines_without_an_end_is_not_one_of_the_run() -> None:
    lines = "".join(f"iter {n}: loss 3.0, time 100.00ms, mfu 9.00%\n" for n in range(100, 110))
    text = f"step 100: train loss 3.1, val loss 3.1\n{lines.replace('time 100.00', 'time 900.00', 1)}"
    (run,) = read(from_text(text))
    for settings, of in (((), "of the time in this log"), (("max_iters=110",), "of the run")):
        a = UserContext(settings=settings).analyse(run)
        assert of in " ".join(say(each, "en") for each in sentences.nothing(advice_on_log(a)))


def test_a_log_that_shows_too_little_is_said_to() -> None:
    (said,) = sentences.nothing(None)
    assert "too little" in said.key
    for form in (on_terminal, as_note):
        assert "too little" in form(AdviceReport())
    assert document(AdviceReport())["advice"] == []


def test_where_only_the_machine_is_worth_a_look_no_setting_is_promised() -> None:
    found = on_log(Truth(max_iters=20000, eval_s=0.1), "4090")
    assert found is not None
    assert "machine" in sentences.headline(found).key
    assert "Before" not in on_terminal(AdviceReport(advice=found))


def test_the_headline_is_the_first_of_the_list_with_its_saving_and_then_what_the_changes_give() -> None:
    found = on_log(Truth(max_iters=20000, eval_s=3.0, eval_interval=250), "4090")
    assert found is not None
    assert not found.advice[0].remedy  # a look at the machine saves most
    assert any(found.chosen)
    first, second, *_ = as_note(AdviceReport(advice=found)).split("\n\n")[1:]
    assert first.startswith("**" + escaped(say(found.advice[0].what, "en")))
    assert escaped(say(sentences.saves(found, 0), "en")) in first
    assert second.startswith("**Without that, ")
    assert escaped(i18n.percent(found.saves_s.mid / found.before.total_s.mid, "en")) in second


def test_recommended_settings_are_headed_by_what_is_recommended() -> None:
    head, _, rest = on_terminal(recommended("4090")).partition("\n\n")
    said = " ".join(head.split())
    assert "on the GeForce RTX 4090: batch_size = " in said
    assert "nanoGPT's default" in said
    assert " d " not in said  # the days that the default run would take are no headline
    assert "of nanoGPT's default run" in " ".join(rest.split())
    given = " ".join(on_terminal(recommended("4090", n_layer=6, n_head=6, n_embd=384, max_iters=5000)).split())
    assert "for 5,000 iterations" in given
    assert "No model was given" not in given


def test_an_alternative_is_folded_below_the_change_that_it_is_an_alternative_to() -> None:
    found = on_log(Truth(max_iters=20000, eval_interval=100, checkpoint_s=10.0, eval_iters=20, eval_s=1.4))
    assert found is not None
    unchosen = [place for place, advice in enumerate(found.advice) if advice.remedy and not found.chosen[place]]
    assert unchosen
    parts = list(sentences.changes(found))
    folded = [inner for part in parts for inner in part.sections]
    assert len(folded) == len(unchosen)
    assert all(inner.folded for inner in folded)
    assert all(found.advice[place].what in [inner.heading for inner in folded] for place in unchosen)
    assert [part.number for part in parts] == list(range(1, len(parts) + 1))


def test_each_change_has_its_saving_beside_it_and_its_lines_to_paste() -> None:
    for position, part in enumerate(sentences.changes(MANY)):
        advice = next(advice for advice in MANY.advice if advice.what == part.heading)
        assert part.beside == sentences.saves(MANY, MANY.advice.index(advice)), position
        code = "\n".join(block.text for block in part.blocks if isinstance(block, Code))
        for name, (_, new) in advice.change.items():
            assert (f"{name} = {new!r}" in code) == (name not in sentences.NOT_TAKEN)
        assert advice.patch is None or advice.patch in code


def test_the_first_change_stands_alone_and_the_others_with_those_before() -> None:
    found = MANY
    told = [sentences.together(found, position) for position in range(len(found.advice))]
    first = found.chosen.index(True)
    assert told[first] == ()
    second = found.chosen.index(True, first + 1)
    (message,) = told[second]
    assert message.params["saved"] == found.together_s[second]


def test_an_estimated_saving_says_so_and_a_measured_one_does_not() -> None:
    assert LONG_LOG is not None
    assert "estimated" in sentences.saves(MANY, 0).key
    assert "estimated" not in sentences.saves(LONG_LOG, 0).key


def test_a_run_that_is_still_going_says_how_much_is_ahead() -> None:
    going = on_log(Truth(max_iters=20000, kept=0.5))
    assert going is not None
    told = sentences.span(going)
    assert told is not None
    assert 9000 < told.params["left"] < 11000
    assert sentences.span(MANY) is None


# --- what to type -----------------------------------------------------------------------------------------------


def test_the_command_is_nanogpts_own() -> None:
    assert sentences.train_command({"eval_interval": 2000}, "config/a.py", 1) == (
        "python train.py", "config/a.py", "--eval_interval=2000",
    )  # fmt: skip
    assert sentences.train_command({"world_size": 4, "batch_size": 8}, None, 4) == (
        "torchrun --standalone --nproc_per_node=4 train.py", "--batch_size=8",
    )  # fmt: skip


def test_there_is_no_command_where_no_setting_of_train_py_changes() -> None:
    assert sentences.train_command({"flash": True, "vocab_size": 50304}, "a.py", 1) == ()


def test_the_diff_has_old_and_new_and_nothing_that_train_py_does_not_take() -> None:
    change = {"dtype": ("float32", "bfloat16"), "eval_iters": (None, 50), "fused": (False, True)}
    assert sentences.config_diff(change) == ["- dtype = 'float32'", "+ dtype = 'bfloat16'", "+ eval_iters = 50"]


def test_a_recommended_config_is_python_and_train_py_takes_all_of_it() -> None:
    answer = recommended(**{name: GPT2[name] for name in ("n_layer", "n_head", "n_embd")})
    assert answer.recommended is not None
    lines = sentences.config_lines(answer.recommended)
    names = {node.targets[0].id for node in ast.parse("\n".join(lines)).body}  # type: ignore[attr-defined]
    assert {"batch_size", "gradient_accumulation_steps", "dtype", "compile", "eval_interval"} <= names
    assert not names & sentences.NOT_TAKEN
    assert command_of(answer)[0] == "python train.py"


def test_several_cards_are_started_by_torchrun() -> None:
    assert command_of(recommended("a100", 8))[0].startswith("torchrun --standalone --nproc_per_node=8")
    more = AdviceReport(advice=on_plan(cards=4))
    assert command_of(more)[0].startswith("torchrun --standalone --nproc_per_node=4")


@pytest.mark.parametrize(
    "found",
    [
        LONG_LOG, MANY, on_plan("a100", **TINY), on_plan(eval_interval=6000, mtbf_hours=24.0),
        on_plan(fused=False, gradient_accumulation_steps=1),
        on_log(Truth(max_iters=20000, eval_interval=100, checkpoint_s=10.0, eval_iters=20, eval_s=1.4)),
    ],
)  # fmt: skip
def test_what_is_to_be_pasted_is_python(found: AdviceList | None) -> None:
    assert found is not None
    for advice in found.advice:
        if advice.patch is None or advice.patch.startswith(("pip", "nvidia-smi")):
            continue
        code = advice.patch
        ast.parse(code + "\n    pass" if code.endswith(":") else code)
        assert advice.where is not None


# --- three forms, every language --------------------------------------------------------------------------------


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("answer", [AdviceReport(advice=LONG_LOG), AdviceReport(advice=MANY), recommended("4090")])
def test_no_placeholder_is_left(answer: AdviceReport, language: str) -> None:
    for text in (on_terminal(answer, language), as_note(answer, language)):
        prose = text.replace("{key: on_host(value) for key, value in x.items()}", "")
        assert "{" not in prose.replace("{'", "")
        assert ":range}" not in text


def test_the_terminal_keeps_to_its_width() -> None:
    for answer in (AdviceReport(advice=LONG_LOG), recommended()):
        assert max(map(len, on_terminal(answer).splitlines())) <= 80


def test_the_note_shows_before_and_after_side_by_side() -> None:
    note = as_note(AdviceReport(advice=LONG_LOG))
    assert note.startswith("# ")
    assert "Whole run" in note
    assert "```diff\n- eval_interval = 250\n+ eval_interval = 2000\n```" in note
    assert "```sh\npython train.py --eval_interval=2000\n```" in note


def test_the_json_keeps_its_promises() -> None:
    found = document(AdviceReport(advice=LONG_LOG))
    assert found["schema"] == "stepwatch.advice/1"
    assert {"advice", "before", "after", "recommended", "plan"} <= set(found)
    assert found["recommended"] is None
    assert found["plan"] is None
    for advice in found["advice"]:
        assert {"rule", "change", "patch", "saves_s", "basis", "price", "text"} <= set(advice)
        assert advice["basis"] in ("measured", "modelled")
        assert advice["saves_s"]["low"] <= advice["saves_s"]["mid"] <= advice["saves_s"]["high"]
        assert advice["change"] or advice["patch"]
    assert found["advice"][0]["change"] == {"eval_interval": [250, 2000]}
    parts = found["before"]["parts_s"]
    assert sum(part["mid"] for part in parts.values()) == pytest.approx(found["before"]["total_s"]["mid"], rel=0.01)
    assert found["after"]["total_s"]["mid"] < found["before"]["total_s"]["mid"]


def test_the_json_of_recommended_settings_has_their_plan() -> None:
    found = document(recommended("4070", n_layer=6, n_head=6, n_embd=384))
    assert found["advice"] == []
    assert found["plan"]["schema"] == "stepwatch.plan/1"
    assert found["plan"]["fits"] is True
    assert found["recommended"]["batch_size"] == found["plan"]["settings"]["batch_size"]
    assert found["after"]["total_s"]["mid"] == pytest.approx(found["plan"]["total_s"]["mid"])
    assert found["before"]["total_s"]["mid"] >= found["after"]["total_s"]["mid"]


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_the_json_differs_between_languages_in_its_sentences_alone(language: str) -> None:
    english, other = document(AdviceReport(advice=LONG_LOG)), document(AdviceReport(advice=LONG_LOG), language)
    for one, two in zip(english["advice"], other["advice"], strict=True):
        assert one["text"] != two["text"]
        assert one["price"] != two["price"]
        assert {k: v for k, v in one.items() if k not in ("text", "price")} == {
            k: v for k, v in two.items() if k not in ("text", "price")
        }
    assert english["before"] == other["before"]
