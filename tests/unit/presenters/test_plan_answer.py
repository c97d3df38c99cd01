"""A plan on the terminal and as a note: what it says, that it fits a screen, and that it agrees with the JSON."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import replace
from itertools import cycle, product
from typing import Any

import pytest

from stepwatch import i18n
from stepwatch.advice import advice_on_plan
from stepwatch.estimator.plan import Plan, plan, plan_json
from stepwatch.gpus import find_gpu, gpus
from stepwatch.i18n import LANGUAGES
from stepwatch.i18n import say as say_plainly
from stepwatch.messages import Message
from stepwatch.presenters import View, plan_sentences, render, terminal
from stepwatch.report import PlanReport
from stepwatch.settings import Origin, Settings, Value
from stepwatch.units import TERA, Interval

GPT2: dict[str, Value] = {
    "n_layer": 12, "n_head": 12, "n_embd": 768, "batch_size": 8, "gradient_accumulation_steps": 64,
    "max_iters": 12000, "eval_interval": 500,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Value]] = {
    "gpt2": GPT2,
    "nothing": {},
    "characters": {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "vocab_size": 65, "batch_size": 64,
                   "gradient_accumulation_steps": 1, "max_iters": 5000, "eval_interval": 250, "dropout": 0.2},
    "xl": {"init_from": "gpt2-xl", "max_iters": 100},
    "size only": {"n_params": 40e6, "tokens_per_iter": 524_288},
    "eager": {**GPT2, "compile": False, "flash": False, "dtype": "float32", "always_save_checkpoint": False},
    "bf16": {**GPT2, "dtype": "bfloat16"},
    "too large a batch": {**GPT2, "batch_size": 64, "gradient_accumulation_steps": 8},
    "one iteration": {**GPT2, "max_iters": 1, "always_save_checkpoint": False},
}  # fmt: skip
CARDS = ["4070", "2080 ti", "a100-80gb", "4070 laptop", "gtx 1080"]
REMARK = Message("These settings were left out: {names:word}.", {"names": "learning_rate, out_dir"})


def a_plan(config: str | dict[str, Value] = "gpt2", gpu: str = "4070", **options: Any) -> Plan:
    values = CONFIGS[config] if isinstance(config, str) else config
    return plan(Settings.of(Origin.USER, values), find_gpu(gpu), **options)


def on_terminal(of: Plan, *remarks: Message, **options: Any) -> str:
    return answered(of, "terminal", *remarks, **options)


def as_note(of: Plan, *remarks: Message, **options: Any) -> str:
    return answered(of, "md", *remarks, **options)


def answered(of: Plan, form: str, *remarks: Message, language: str = "en", **options: Any) -> str:
    report = PlanReport(plan=of, advice=advice_on_plan(of), remarks=remarks)
    return str(render(report, form, language, View(**options)))


def unwrapped(text: str) -> str:
    return " ".join(text.split())


# --- the first screen -------------------------------------------------------------------------------------------


def test_first_screen_fits_25_lines_of_80_columns() -> None:
    for (config, gpu), claim in zip(product(CONFIGS, CARDS), cycle([None, "20min", "2M-tokens/s", None]), strict=False):
        lines = on_terminal(a_plan(config, gpu, claim=claim), REMARK).splitlines()
        assert len(lines) <= 25, (config, gpu, claim)
        assert max(map(len, lines)) <= 80, (config, gpu, claim)


def test_first_screen_fits_with_sentences_a_third_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    def wordy(message: Message, language: str) -> str:
        words = len(re.sub(r"\{.*?\}", "", message.key)) // 3
        return say_plainly(message, language) + ("abcd " * words)[: words - words % 5].rstrip() + "x" * (words % 5)

    monkeypatch.setattr(terminal, "say", wordy)
    for (config, gpu), n_gpus in zip(product(CONFIGS, CARDS), cycle([1, 3, 8]), strict=False):
        text = on_terminal(a_plan(config, gpu, n_gpus=n_gpus, claim="20min"), REMARK)
        lines = text.splitlines()
        assert len(lines) <= 25, (config, gpu, n_gpus)
        assert max(map(len, lines)) <= 80, (config, gpu, n_gpus)
        assert "Speed" in text, (config, gpu, n_gpus)
        assert "Memory" in text, (config, gpu, n_gpus)


def test_first_screen_answers_first_and_ends_with_an_option() -> None:
    lines = on_terminal(a_plan()).splitlines()
    assert lines[0] == "✔ Fits"
    assert lines[1].startswith("On the GeForce RTX 4070 this run takes ")
    assert lines[-1] == "  --why"


def test_gaps_are_single() -> None:
    for config in CONFIGS:
        text = on_terminal(a_plan(config))
        assert "\n\n\n" not in text
        assert not text.startswith("\n")


def test_remarks_are_shown_as_notices() -> None:
    assert "\n• These settings were left out: learning_rate, out_dir.\n" in on_terminal(a_plan(), REMARK)
    assert "\n- These settings were left out: `learning_rate`, `out_dir`." in as_note(a_plan(), REMARK)


# --- claims -----------------------------------------------------------------------------------------------------


def test_an_impossible_claim_is_refused_first_with_what_it_would_need() -> None:
    of = a_plan(claim="20min")
    claim, floor = plan_json(of)["claim"], plan_json(of)["floor_step_s"]
    for text in (on_terminal(of), as_note(of).partition("\n\n")[2].lstrip("*")):
        said = unwrapped(text)
        assert said.startswith("Impossible: 20min would need ")
        assert i18n.tflops(claim["needs_tflops"] * TERA, "en") in said
        assert f"{i18n.factor(claim['of_peak'], 'en')} times the peak" in said
        assert f"the physical limit here is {i18n.duration(floor, 'en')}" in said


def test_several_cards_are_judged_each() -> None:
    of = a_plan(gpu="4090", n_gpus=2, claim="1ms")
    assert "TFLOPS of each GeForce RTX 4090" in unwrapped(on_terminal(of))


def test_every_verdict_is_named_plainly() -> None:
    expected = a_plan().estimate.step_s
    for step_s, word in (
        (0.9 * expected.low, "Implausible"), (expected.mid, "Plausible"), (3 * expected.high, "Possible"),
    ):  # fmt: skip
        assert on_terminal(a_plan(claim=f"{step_s}s")).startswith(f"{word}: ")


def test_an_impossible_claim_below_the_peak_is_not_called_above_it() -> None:
    of = a_plan(GPT2, claim="5s")
    assert of.claim is not None
    said = on_terminal(replace(of, claim=of.claim._replace(of_peak=0.9, verdict="impossible")))
    assert said.startswith("Impossible: 5s is faster than the GeForce RTX 4070 can compute.")


def test_nothing_is_judged_where_nothing_is_claimed() -> None:
    assert not re.search("possible|plausible", on_terminal(a_plan(), why=True), re.IGNORECASE)


# --- the same figures everywhere --------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", CARDS)
@pytest.mark.parametrize("config", CONFIGS)
def test_terminal_note_and_json_give_the_same_figures(config: str, gpu: str) -> None:
    of = a_plan(config, gpu)
    told = plan_json(of)
    keys = ["step_s", "eval_s", "compile_s", "total_s", "step_part_s"] + ["checkpoint_s"] * (told["saves"]["high"] > 0)
    figures = [i18n.duration_range(Interval(**told[key]), "en") for key in keys]
    figures += [i18n.percent(told["mfu"][end], "en") for end in ("low", "high")]
    figures += [i18n.size(told["vram_bytes"][end], "en") for end in ("low", "high")]
    figures += [i18n.token_rate(told["tokens_per_s"]["high"], "en"), i18n.decimal(told["evaluations"], "en")]
    figures += [i18n.token_rate(told["tokens_per_s"]["low"], "en").split()[0]]
    figures += [i18n.tflops(told["peak_tflops"] * TERA, "en")]
    for text in (unwrapped(on_terminal(of)), unwrapped(as_note(of))):
        assert [figure for figure in figures if figure not in text] == []


@pytest.mark.parametrize("config", CONFIGS)
def test_why_shows_the_terms_the_floor_and_the_counts(config: str) -> None:
    of = a_plan(config, n_gpus=2)
    told = plan_json(of)
    for text in (unwrapped(on_terminal(of, why=True)), unwrapped(as_note(of, why=True))):
        for name, seconds in told["terms_s"].items():
            if seconds:
                assert say_plainly(plan_sentences.TERMS[name]) in text
                assert i18n.duration(seconds, "en") in text
        assert f"{i18n.duration(told['floor_step_s'], 'en')} per iteration: the least arithmetic" in text
        assert f"{i18n.factor(told['flops_per_iter'] / TERA, 'en')} TFLOP per iteration" in text
        assert f"{i18n.decimal(told['settings']['max_iters'] + 1, 'en')}: from iteration 0" in text


def test_shares_of_the_terms_sum_to_the_whole() -> None:
    rows = list(plan_sentences.term_rows(a_plan(n_gpus=8)))
    assert sum(share.params["share"] for _, _, share in rows[:-1]) == pytest.approx(1.0)
    assert rows[-1][1].params["time"] == pytest.approx(sum(time.params["time"] for _, time, _ in rows[:-1]))


# --- memory -----------------------------------------------------------------------------------------------------


def test_a_run_that_does_not_fit_says_so_first_and_offers_one_that_does() -> None:
    of = a_plan("too large a batch")
    lines = on_terminal(of).splitlines()
    assert lines[1].startswith("This run does not fit into the memory of the GeForce RTX 4070")
    batch, steps = map(int, re.findall(r"=(\d+)", lines[-1]))
    assert lines[-1].strip() == f"--batch_size={batch} --gradient_accumulation_steps={steps}"
    assert batch * steps == 64 * 8
    assert a_plan({**GPT2, "batch_size": batch, "gradient_accumulation_steps": steps}).fits


def test_a_model_of_which_not_one_sequence_fits_is_told() -> None:
    assert "Not even a batch_size of 1 does." in unwrapped(on_terminal(a_plan("xl")))


def test_unknown_memory_is_called_unknown() -> None:
    of = a_plan()
    unknown = replace(of, gpu=replace(of.gpu, vram_bytes=None), fits=None, largest_batch_size=None)
    for text in (on_terminal(unknown), as_note(unknown)):
        assert "the memory of the card is unknown" in unwrapped(text)
        assert "It fits" not in text


# --- what it rests on -------------------------------------------------------------------------------------------


def test_defaults_that_matter_are_named() -> None:
    said = unwrapped(on_terminal(a_plan()))
    assert "nanoGPT's defaults: block_size=1024, dtype=bfloat16, compile=True" in said
    assert "n_layer=12" not in said


def test_a_guessed_shape_is_called_guessed_and_asked_for() -> None:
    text = on_terminal(a_plan("size only"))
    assert "Guessed: batch_size=8, " in unwrapped(text)
    assert re.fullmatch(r"  --n_layer=\d+ --n_head=\d+ --n_embd=\d+", text.splitlines()[-1])


def test_a_default_length_is_asked_for() -> None:
    assert on_terminal(a_plan("nothing")).splitlines()[-1].startswith("  --max_iters=")


def test_emulated_bfloat16_is_warned_of() -> None:
    text = on_terminal(a_plan("bf16", "2080 ti"))
    assert "\n! The GeForce RTX 2080 Ti has no bfloat16" in text
    assert text.splitlines()[-1] == "  --dtype=float16"
    assert "no bfloat16" not in on_terminal(a_plan("bf16", "4070"))


def test_cards_that_cannot_share_the_micro_steps_are_warned_of() -> None:
    assert "\n! nanoGPT will not start" in on_terminal(a_plan(n_gpus=3))
    shared = unwrapped(on_terminal(a_plan(n_gpus=4)))
    assert "nanoGPT will not start" not in shared
    assert "On 4 × GeForce RTX 4070 this run takes" in shared


def test_the_mfu_of_the_log_is_foretold_for_every_card_but_an_a100() -> None:
    of = a_plan()
    assert i18n.percent(of.mfu.low * of.peak_flops / 312e12, "en") in unwrapped(on_terminal(of))
    assert "compares every card" not in as_note(a_plan(gpu="a100-80gb"))


# --- form -------------------------------------------------------------------------------------------------------


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_piped_output_has_no_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in on_terminal(a_plan(claim="20min"), why=True)


def test_a_terminal_gets_colour_unless_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", _Tty())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in on_terminal(a_plan())
    assert "\x1b" not in on_terminal(a_plan(), colour=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3\d", on_terminal(a_plan()))


@pytest.mark.parametrize("columns", ["20", "60", "200"])
def test_width_follows_the_terminal_up_to_100_columns(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setattr(sys, "stdout", _Tty())
    monkeypatch.setenv("COLUMNS", columns)
    text = on_terminal(a_plan(), colour=False)
    assert max(map(len, text.splitlines())) <= max(45, min(int(columns), 100))


def test_outside_text_is_neither_markup_nor_control() -> None:
    hostile = {**GPT2, "device": "<b>|`x`\x1b[31m*a*\udc80"}
    of = a_plan(hostile, claim="20 min")
    remark = Message("Left out: {names:word}.", {"names": "<script>\x1b[2J|"})
    note = as_note(of, remark, why=True)
    assert "<script>" not in note.replace("\\<", "")
    assert "\x1b" not in note + on_terminal(of, remark, why=True)
    note.encode("utf-8")
    rows = [line for line in note.splitlines() if line.startswith("| device ")]
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 4


def test_front_matter_is_there_when_asked_for() -> None:
    assert as_note(a_plan(), front_matter=True).startswith('---\ntitle: "How long this run will take"\nlang: "en"\n')
    assert as_note(a_plan()).startswith("# How long this run will take\n")


@pytest.mark.parametrize("config", CONFIGS)
def test_every_language_and_form_answers(config: str) -> None:
    """Each language in both forms; the reasons by turns in one of them, since a form does not change them."""
    of = a_plan(config, claim="1h")
    for place, language in enumerate(LANGUAGES):
        for form in ("terminal", "md"):
            assert answered(of, form, REMARK, language=language, why=(place % 2 == 0) == (form == "md"))


def test_every_card_with_a_known_speed_is_answered_on_one_screen() -> None:
    settings = Settings.of(Origin.USER, GPT2)
    for gpu in gpus():
        if gpu.peak_flops("bfloat16").flops and gpu.bandwidth_bytes_per_s:
            text = on_terminal(plan(settings, gpu, claim="20min"), REMARK)
            assert len(text.splitlines()) <= 25, gpu.name
            assert max(map(len, text.splitlines())) <= 80, gpu.name


def test_the_terminal_loads_nothing_heavy() -> None:
    modules = "stepwatch.presenters.plan_answer, stepwatch.presenters.terminal, sys"
    code = f"import {modules}; print([m for m in ('rich', 'babel', 'vl_convert') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
