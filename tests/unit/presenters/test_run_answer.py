"""The terminal and the note: what they show, that they agree, and that nothing from outside becomes markup."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from tests.builders import Saves, Truth, a_log
from tools import ROOT

from stepwatch import i18n
from stepwatch.advice import advice_on_log
from stepwatch.analysis import Analysis, analyse
from stepwatch.analysis.findings import WARNING, Finding
from stepwatch.analysis.forecast import Reason
from stepwatch.answers.from_logs import ExplainRequest, explain
from stepwatch.gpus import find_gpu
from stepwatch.i18n import LANGUAGES, say
from stepwatch.messages import Message
from stepwatch.presenters import View, render, run_json, text_of
from stepwatch.presenters import run_sentences as sentences
from stepwatch.presenters.markdown import escaped
from stepwatch.readers import read
from stepwatch.report import Report, RunReport
from stepwatch.run import Unread
from stepwatch.settings import Origin, Settings
from stepwatch.sources import from_text
from stepwatch.units import Interval
from stepwatch.verdict import judge

sys.path.insert(0, str(Path(__file__).parents[3]))

PLAIN = Truth(max_iters=2000, eval_interval=500, log_interval=10)
SLOW_SAVES = Truth(max_iters=1000, eval_interval=100, eval_s=4.0, checkpoint_s=6.0, saves=Saves.ALWAYS)
NO_HEADER = replace(PLAIN, header=False)
NO_MFU = replace(PLAIN, header=False, with_mfu=False)
STALLING = replace(PLAIN, stall_share=0.05, seed=3)
CUT = replace(PLAIN, kept=0.5)
CHEAP = replace(PLAIN, eval_s=0.2, checkpoint_s=0.01, compile_s=1.0)
TRUTHS = [PLAIN, SLOW_SAVES, NO_HEADER, NO_MFU, STALLING, CUT, CHEAP, replace(PLAIN, timestamps=True)]

ONE_LINE = "iter 0: loss 4.1, time 12543.49ms, mfu -100.00%\n"
TINY_LOGS = [
    ONE_LINE,
    "iter 7: loss 4.1, time 0.00ms\n",
    "step 0: train loss 4.2, val loss 4.2\n" + ONE_LINE,
    "iter 10: loss nan, time 10.00ms, mfu 1.00%\niter 20: loss nan, time 10.00ms, mfu 1.00%\n",
    "step 10: train loss 4.2, val loss 4.2\nsaving checkpoint to out\niter 10: loss 4.1, time 900.00ms\n",
    "".join(f"step {k}: train loss 4.2, val loss 4.2\niter {k}: loss 4.1, time 900.00ms\n" for k in range(0, 50, 10)),
]


def a_report(text: str, *, gpu: str | None = None, source: str = "train.log", **settings: int) -> Report:
    card = find_gpu(gpu) if gpu else None
    user = Settings.of(Origin.USER, dict(settings))
    runs = read(from_text(text, source))
    analyses = [
        analyse(replace(run, settings=run.settings.overridden_by(user)), card, "user" if card else None) for run in runs
    ]
    return of(*analyses)


def of(*analyses: Analysis) -> Report:
    return Report(runs=tuple(RunReport(analysis=a, advice=advice_on_log(a), verdict=judge(a)) for a in analyses))


def on_terminal(report: Report, **options: bool) -> str:
    return str(render(report, "terminal", "en", View(**options)))


def as_note(report: Report, **options: bool) -> str:
    return str(render(report, "md", "en", View(**options)))


def as_json(report: Report) -> dict:
    return json.loads(render(report, "json", "en"))["runs"][0]


@pytest.mark.parametrize("together", [1, 7, 1 << 12])
def test_json_in_pieces_is_json_at_once(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """However many iterations a piece has, of several runs, and without iterations too."""
    monkeypatch.setattr(run_json, "_TOGETHER", together)
    (analysis,) = (run.analysis for run in a_report(a_log(PLAIN)).runs)
    report = of(analysis, analysis)
    for view in (View(), View(iterations=False), View(with_lines=True)):
        pieces = list(text_of(report, "json", "en", view))
        document = json.loads("".join(pieces))
        assert "".join(pieces) == json.dumps(document, ensure_ascii=False) + "\n"
        for run in document["runs"]:
            numbers = [row["iter"] for row in run.get("iterations", ())]
            assert numbers == (analysis.run.iterations.number.tolist() if view.iterations else [])


# --- the first screen -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", [None, "4070"])
@pytest.mark.parametrize("truth", TRUTHS)
def test_first_screen_fits_25_lines_of_80_columns(truth: Truth, gpu: str | None) -> None:
    lines = on_terminal(a_report(a_log(truth), gpu=gpu)).splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80


def test_first_screen_answers_first_and_ends_with_a_command() -> None:
    lines = on_terminal(a_report(a_log(replace(NO_HEADER, eval_s=8.0)))).splitlines()
    assert lines[0] == "◆ Overhead"
    assert lines[1].startswith("A normal iteration takes ")
    assert lines[-1].strip() == "stepwatch explain train.log --gpu 4070"


def test_who_gives_a_price_sees_the_cost_on_the_first_screen() -> None:
    request = ExplainRequest(logs=(str(ROOT / "examples" / "nanogpt-4070.log"),), price_per_hour="2")
    assert "costs 0.6044" in " ".join(render(explain(request), "terminal", "en").split())


def test_next_command_asks_for_what_is_missing_and_keeps_what_was_given() -> None:
    text = a_log(NO_HEADER)
    assert "--gpu 4070" in on_terminal(a_report(text)).splitlines()[-1]
    assert on_terminal(a_report(text, gpu="4070")).rstrip().endswith('--gpu "GeForce RTX 4070" --set max_iters=4000')
    complete = on_terminal(a_report(text, gpu="4070", max_iters=9000))
    assert "--set max_iters=9000" in complete
    assert complete.rstrip().endswith("--full")


def test_file_names_are_quoted_in_the_next_command() -> None:
    assert '"a;b.log" --gpu' in on_terminal(a_report(a_log(NO_HEADER), source="a;b.log"))
    assert '"my run.log" --gpu' in on_terminal(a_report(a_log(NO_HEADER), source="my run.log"))


def test_chart_marks_slow_iterations_by_letters() -> None:
    chart = [line for line in on_terminal(a_report(a_log(PLAIN))).splitlines() if "│" in line]
    assert 3 <= len(chart) <= 5
    marks = set("".join(line.partition("│")[2] for line in chart))
    assert "0" in marks
    assert marks & {"e", "c"}


def test_warnings_are_marked_without_colour() -> None:
    report = a_report(a_log(CHEAP))
    warning = Finding("settings_conflict", WARNING, Message("Something is wrong."))
    assert "\n! Something is wrong.\n" in on_terminal(replace(report, remarks=(warning,)))


# --- colour -----------------------------------------------------------------------------------------------------


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_piped_output_has_no_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in on_terminal(a_report(a_log(PLAIN)), full=True)


def test_a_terminal_gets_colour_unless_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", _Tty())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    report = a_report(a_log(PLAIN))
    assert "\x1b[" in on_terminal(report)
    assert "\x1b" not in on_terminal(report, colour=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[\d;]*3\d", on_terminal(report))


@pytest.mark.parametrize("columns", ["20", "60", "200"])
def test_width_follows_the_terminal_up_to_100_columns(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setattr(sys, "stdout", _Tty())
    monkeypatch.setenv("COLUMNS", columns)
    text = on_terminal(a_report(a_log(PLAIN)), colour=False)
    assert max(map(len, text.splitlines())) <= max(45, min(int(columns), 100))


# --- the same figures everywhere --------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [PLAIN, SLOW_SAVES, CUT, STALLING])
def test_terminal_note_and_json_give_the_same_figures(truth: Truth) -> None:
    report = a_report(a_log(truth), gpu="4070")
    run = as_json(report)
    said = [i18n.duration_range(Interval(**cost), "en") for key, cost in run["costs"].items() if _is_shown(key, cost)]
    said.append(i18n.duration(run["goodput"]["wall_s"], "en"))
    said.append(i18n.percent(run["goodput"]["parts_s"]["step"] / run["goodput"]["wall_s"], "en"))
    said.append(i18n.percent(run["throughput"]["mfu"], "en"))
    said.append(i18n.token_rate(run["throughput"]["tokens_per_s"], "en"))
    if run["forecast"] and not run["forecast"]["done"]:
        said.append(i18n.duration_range(Interval(**run["forecast"]["remaining_s"]), "en"))
    terminal, note = (" ".join(text.split()) for text in (on_terminal(report), as_note(report)))
    for figure in said:
        assert figure in terminal
        assert figure in note


def _is_shown(key: str, cost: dict | None) -> bool:
    return cost is not None and key in ("step_s", "eval_s", "checkpoint_s", "compile_s")


def first_words(text: str) -> str:
    return say(a_report(text).runs[0].verdict.text, "en").replace("\u00a0", " ")


def _modded(slow: frozenset[int]) -> str:
    total, text = 0, ""
    for n in range(1, 401):
        total += 400 if n in slow else 100
        text += f"step:{n}/400 train_time:{total}ms step_avg:{total / n:.2f}ms\n"
    return text


def test_the_headline_names_the_period_of_slow_iterations_where_most_of_them_have_one() -> None:
    regular, odd = frozenset(range(10, 401, 10)), frozenset({13, 57, 58, 91, 144, 215, 301, 302, 333, 378, 391, 399})
    told = first_words(_modded(regular))
    assert "Every 10 iterations one is slow, which costs 23.1 %" in told
    assert "Every 10" in first_words(_modded(regular | odd))
    assert "stalls that the log does not explain" in first_words(_modded(odd))


def test_evaluations_that_no_line_tells_of_are_not_called_measured() -> None:
    told = Truth(saves=Saves.NEVER, header=False)
    silent = a_report(a_log(replace(told, with_step_lines=False))).analyses[0]
    for a, word in ((silent, "inferred"), (a_report(a_log(told)).analyses[0], "measured")):
        (row,) = (row for row in sentences.part_rows(a) if row.part == "eval")
        assert row.how == Message(word)


def test_shares_of_the_parts_sum_to_the_whole() -> None:
    for truth in TRUTHS:
        (analysis,) = a_report(a_log(truth)).analyses
        rows = sentences.part_rows(analysis)
        assert sum(row.share for row in rows) == pytest.approx(1.0, abs=2 * sentences.SMALLEST_SHOWN)


# --- nothing raises ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TINY_LOGS)
@pytest.mark.parametrize("gpu", [None, "4070", "cpu"])
def test_the_smallest_logs_are_answered(text: str, gpu: str | None) -> None:
    report = a_report(text, gpu=gpu)
    for full in (False, True):
        assert on_terminal(report, full=full, with_lines=True).strip()
    assert as_note(report, front_matter=True, with_lines=True).strip()


def test_a_single_iteration_gives_no_normal_time() -> None:
    assert "a single iteration" in on_terminal(a_report(ONE_LINE))
    assert "too little" in as_note(a_report(ONE_LINE))


def test_a_log_without_mfu_and_header_says_how_to_get_the_speed() -> None:
    report = a_report(a_log(NO_MFU))
    assert "--set tokens_per_iter=…" in " ".join(on_terminal(report, full=True).split())
    assert "`--set tokens_per_iter=…`" in as_note(report)
    assert "TFLOPS" not in on_terminal(report)
    assert "tokens/s" in on_terminal(a_report(a_log(NO_MFU), tokens_per_iter=16384))


# --- several runs -----------------------------------------------------------------------------------------------


def test_several_runs_are_listed_and_the_longest_is_explained() -> None:
    short, long = replace(PLAIN, max_iters=500), replace(PLAIN, step_s=0.3)
    report = a_report(a_log(short) + a_log(long))
    assert len(report.analyses) == 2
    text = on_terminal(report)
    assert text.startswith("2 runs were found, 1 with a problem.\nThe worst is run 1:")
    assert "Below: run 2, the longest." in text
    assert text.rstrip().endswith("stepwatch explain train.log --run 1")
    note = as_note(report)
    assert "## Run 1" in note
    assert "## Run 2" in note


# --- everything -------------------------------------------------------------------------------------------------


def test_full_shows_all_findings_the_slow_iterations_and_the_settings() -> None:
    report = a_report(a_log(PLAIN))
    text = " ".join(on_terminal(report, full=True).split())
    for finding in as_json(report)["findings"]:
        assert " ".join(finding["text"].split()) in text
    assert "Which iterations are slow" in text
    assert "eval_interval 500 from the log" in text


def test_at_most_30_slow_iterations_are_listed_and_the_slowest_is_among_them() -> None:
    (analysis,) = a_report(a_log(replace(PLAIN, eval_interval=20, eval_s=1.0))).analyses
    rows, left_out = sentences.slow_rows(analysis, 30)
    assert len(rows) == 30
    assert left_out > 0
    iterations = analysis.run.iterations
    assert iterations.number[rows].tolist() == sorted(iterations.number[rows].tolist())
    assert iterations.time_s[rows].max() == iterations.time_s.max()


# --- what to change ---------------------------------------------------------------------------------------------


LONG = replace(SLOW_SAVES, max_iters=4000)


def test_a_larger_eval_interval_is_proposed_never_a_smaller_one() -> None:
    assert "Raise `eval_interval` from 100 to " in as_note(a_report(a_log(LONG)))


def test_saving_on_improvement_is_proposed_only_where_every_evaluation_saves() -> None:
    always, improving = replace(LONG, eval_s=0.5), replace(LONG, eval_s=0.5, saves=Saves.ON_IMPROVEMENT)
    assert "save_on_improvement" not in [advice["rule"] for advice in as_json(a_report(a_log(improving)))["advice"]]
    assert as_json(a_report(a_log(always)))["advice"]


def test_every_form_says_the_same_saving() -> None:
    report = a_report(a_log(LONG))
    first = as_json(report)["advice"][0]
    said = i18n.duration_range(Interval(**first["saves_s"]), "en")
    assert f"Saves {said} of" in as_note(report)
    assert f"Saves {said} of" in " ".join(on_terminal(report, full=True).split())


def test_nothing_is_proposed_where_nothing_is_to_gain() -> None:
    assert "Nothing is worth changing" in as_note(a_report(a_log(CHEAP)))


# --- text from outside ------------------------------------------------------------------------------------------

HOSTILE = "**x**|`y`_[z](u)<b>&amp;#\x1b[31m.log"


def test_a_hostile_file_name_is_no_markup_and_no_escape_code() -> None:
    report = a_report(a_log(PLAIN), source=HOSTILE)
    note = as_note(report, front_matter=True)
    assert r"\*\*x\*\*\|\`y\`\_\[z\](u)\<b\>\&amp;\#" in note
    for text in (note, on_terminal(report), on_terminal(report, full=True)):
        assert "\x1b" not in text


def test_an_odd_file_name_can_be_written() -> None:
    report = a_report(a_log(PLAIN))
    (analysis,) = report.analyses
    odd = of(replace(analysis, run=replace(analysis.run, source="caf\udce9.log")))
    on_terminal(odd).encode()
    as_note(odd).encode()


def test_settings_and_options_are_set_as_code_and_the_rest_is_escaped() -> None:
    assert escaped("add --set max_iters=… or n_layer") == "add `--set max_iters=…` or `n_layer`"
    assert escaped("a_b * c | <d>") == r"a\_b \* c \| \<d\>"


def test_nothing_of_the_log_is_repeated_unless_asked() -> None:
    secret = "/home/alice/nanoGPT host7 https://wandb.ai/alice/run `rm` | **x** [bold]"
    text = f"{secret}\n" + a_log(replace(PLAIN, out_dir="/home/alice/out"))
    report = a_report(text)
    for answer in (on_terminal(report), on_terminal(report, full=True), as_note(report)):
        assert "alice" not in answer
        assert "host7" not in answer
    assert "host7" in on_terminal(report, with_lines=True)
    assert f"1: {secret}" in as_note(report, with_lines=True)


def test_a_fence_in_an_unread_line_cannot_close_the_block() -> None:
    report = a_report(a_log(PLAIN))
    (analysis,) = report.analyses
    run = replace(analysis.run, unread=(Unread(line=4, text="```` # escape"),))
    note = as_note(of(replace(analysis, run=run)), with_lines=True)
    assert note.endswith("`````text\n5: ```` # escape\n`````\n")


# --- the note ---------------------------------------------------------------------------------------------------


def test_front_matter_comes_first_with_quoted_values() -> None:
    lines = as_note(a_report(a_log(PLAIN)), front_matter=True).splitlines()
    assert lines[:7] == [
        "---", 'title: "Report on a training run"', 'lang: "en"', "layout: post", "type: note", "---", "",
    ]  # fmt: skip
    assert as_note(a_report(a_log(PLAIN))).startswith("# Report on a training run\n")


def test_tables_of_the_note_have_as_many_cells_in_every_row() -> None:
    blocks = [block.splitlines() for block in as_note(a_report(a_log(STALLING))).split("\n\n") if block.startswith("|")]
    assert len(blocks) == 2
    for rows in blocks:
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_the_same_report_gives_the_same_text() -> None:
    report = a_report(a_log(STALLING))
    assert on_terminal(report, full=True) == on_terminal(report, full=True)
    assert as_note(report) == as_note(report)


def test_a_forecast_does_not_claim_evaluations_whose_cost_nothing_tells() -> None:
    line = (
        "step {n:05d}/01000 ({n}.00%) | loss: 3.900000 | lrm: 1.00 | dt: 100.00ms | tok/sec: 5,000 | bf16_mfu: 40.00"
        " | epoch: 1 | total time: 1.00m"
    )
    text = "".join(
        (f"Step {n:05d} | Validation bpb: 1.0\n" if n % 50 == 0 else "") + line.format(n=n) + "\n" for n in range(200)
    )
    note = as_note(a_report(text))
    assert "exclude evaluations" in note
    assert "to come" not in note


@pytest.mark.parametrize(
    ("language", "iteration", "epoch"),
    [
        ("en", "iteration", "A normal epoch takes 50.0 s"), ("fr", "itération", "Une époque normale"),
        ("de", "iteration", "Eine normale Epoche"), ("es", "iteraci", "Una época normal"),
        ("zh", "迭代", "正常轮次用时 50.0 s"), ("ja", "イテレーション", "通常のエポックは50.0 s"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["terminal", "md"])
def test_an_epoch_whose_batches_are_not_shown_is_no_iteration(
    form: str, language: str, iteration: str, epoch: str
) -> None:
    text = "epoch,time,train/box_loss\n" + "".join(f"{n},{50 * n},1.5\n" for n in range(1, 21))
    told = render(a_report(text), form, language, View(full=True))
    assert isinstance(told, str)
    assert epoch in told.replace("\u202f", " ").replace("\u00a0", " ")
    assert iteration not in told.lower()
    other = render(a_report(a_log(PLAIN)), form, language, View(full=True))
    assert isinstance(other, str)
    assert iteration in other.lower()


LINES = [f"lap {n}/500 | loss 3.{n} | took 34{n % 7} ms" for n in range(1, 60)]


def the_report(lines: list[str]) -> Report:
    return explain(ExplainRequest(logs=(from_text("\n".join(lines)),), like=lines[3]))


@pytest.mark.parametrize(
    ("form", "language"), [*(("terminal", language) for language in LANGUAGES), ("md", "de"), ("html", "zh")]
)
def test_two_lines_of_the_log_come_before_the_verdict(form: str, language: str) -> None:
    text = " ".join(render(the_report(LINES), form, language).split())
    first, last = text.index("lap 1/500"), text.index("lap 59/500")
    assert first < last < text.index("✔")
    assert "341" in text[first:last]


def test_english_says_what_each_figure_is() -> None:
    text = " ".join(render(the_report(LINES), "terminal", "en").split())
    assert "“lap 1/500 | loss 3.1 | took 341 ms”, is read as iteration 1, loss 3.1, 341.0 ms for one iteration." in text
    assert "The time is the figure after “took”, in ms." in text


@pytest.mark.parametrize(
    ("shape", "said", "meaning"),
    [
        ("lap {n} | elapsed {s:.1f} s", "7.00 s since the start", "elapsed"),
        ("Epoch {n} | took 3.{m} s", "epoch 1, 3.10 s for one epoch", "step"),
        ("2024-05-04 09:30:{n:02d} lap {n} | loss 2", "its time by the timestamps of the lines", "clock"),
    ],
)
def test_every_meaning_of_a_time_has_its_words(shape: str, said: str, meaning: str) -> None:
    report = the_report([shape.format(n=n, s=7 * n, m=n % 7) for n in range(1, 60)])
    assert said in " ".join(render(report, "terminal", "en").split())
    assert json.loads(render(report, "json", "en"))["understood"]["time"] == meaning


def test_json_has_the_lines_and_their_figures() -> None:
    understood = json.loads(render(the_report(LINES), "json", "en"))["understood"]
    assert understood["lines"][0] == {"line": 1, "text": LINES[0], "iter": 1, "loss": 3.1, "time_s": 0.341}
    assert (understood["counts"], understood["word"], understood["unit"]) == ("iterations", "took", "ms")


@pytest.mark.parametrize(
    ("shape", "code"),
    [
        ("lap {n} | time 0.3{m}", "like_unit"),
        ("lap {n} | a 0.3{m} s | b 0.9{m} s", "like_doubt"),
        ("2024-05-04 09:30:{n:02d} lap {n} | time 0.003{m} s", "like_clock"),
    ],
)
def test_what_is_not_certain_is_a_finding(shape: str, code: str) -> None:
    report = the_report([shape.format(n=n, m=n % 7) for n in range(1, 60)])
    assert code in {remark.code for remark in report.remarks}
    assert not {remark.code for remark in the_report(LINES).remarks} & {"like_unit", "like_doubt", "like_clock"}


# --- what cannot be known ---------------------------------------------------------------------------------------

EPOCHS = "epoch,time,train/box_loss\n" + "".join(f"{epoch},{50 * epoch},1.5\n" for epoch in range(1, 21))
BAR = "".join(
    f"Training: {n}%|##   | {n}/100 [{n // 60:02d}:{n % 60:02d}<01:00,  1.00it/s, loss=3.2]\n" for n in range(1, 101)
)


@pytest.mark.parametrize("text", [EPOCHS, BAR])
@pytest.mark.parametrize("form", ["terminal", "md", "html"])
def test_no_share_of_evaluations_is_said_where_the_log_would_not_show_them(text: str, form: str) -> None:
    said = str(render(a_report(text, max_iters=100), form, "en", View(full=True)))
    assert "Overhead" not in said
    assert "Evaluations and checkpoints take" not in said
    assert as_json(a_report(text))["goodput"]["parts_s"] | {"step": 0.0} == {
        "step": 0.0, "eval": None, "checkpoint": None, "compile": 0.0, "stall": 0.0, "unexplained": 0.0,
    }  # fmt: skip


def test_what_is_lost_for_sure_is_the_least_where_evaluations_are_hidden() -> None:
    slow = "epoch,time,train/box_loss\n" + "".join(f"{n},{50 * n + 400 * (n > 9)},1.5\n" for n in range(1, 21))
    assert "≥ 28.6 % of the time" in " ".join(on_terminal(a_report(slow)).split())


def test_a_step_that_no_row_shows_is_a_range_and_has_no_overhead() -> None:
    header = "tokens per iteration will be: 524,288\nnumber of parameters: 40.00M\n"
    said = on_terminal(a_report(header + "iter 0: loss 10.8, time 27543.49ms, mfu -100.00%\n", gpu="4070"))
    assert re.search(r"^Step +2\.95–13\.9 s estimated$", said, re.MULTILINE)
    assert "Overhead" not in said


def test_overhead_is_said_where_the_log_has_a_line_for_each_evaluation() -> None:
    steps = "".join(f"iter {n}: loss 3.0, time 100.00ms, mfu 12.00%\n" for n in range(10, 400, 10))
    report = a_report(steps)
    assert "Overhead  0.0 %" in on_terminal(report)
    assert as_json(report)["goodput"]["parts_s"]["eval"] == 0.0


def test_every_reason_for_a_forecasts_range_can_be_said() -> None:
    analysis = analyse(read(from_text(a_log(CUT), "train.log"))[0])
    limited = replace(analysis, run=replace(analysis.run, limit_s=600.0))
    for reason in get_args(Reason):
        forecast = replace(analysis.forecast, reasons=(reason,))
        *_, said = sentences.forecast_notes(replace(limited, forecast=forecast))
        for language in LANGUAGES:
            assert "{" not in say(said, language), (reason, language)


def test_figures_that_say_nothing_are_not_said() -> None:
    steady = "".join(f"iter {n}: loss 4.1, time 80.00ms\n" for n in range(1, 60))
    shown = on_terminal(a_report(steady))
    assert "80.0 ms" in shown
    assert "nine in ten" not in shown  # between 80.0 ms and 80.0 ms
    analysis = analyse(read(from_text(a_log(PLAIN)))[0])
    none = Interval(0.0, 0.0, 2e-5)
    parts = analysis.goodput.parts_s | {"compile": 0.0}
    hidden = replace(
        analysis, costs=replace(analysis.costs, compile_s=none), goodput=replace(analysis.goodput, parts_s=parts)
    )
    assert "compile" in {row.part for row in sentences.part_rows(analysis)}
    assert "compile" not in {row.part for row in sentences.part_rows(hidden)}


def test_what_cannot_be_told_apart_has_no_share_of_nothing() -> None:
    analysis = analyse(read(from_text(a_log(PLAIN)))[0])
    parts = analysis.goodput.parts_s | {"eval": 0.0, "checkpoint": 0.0}
    costs = replace(
        analysis.costs, eval_s=Interval(0.0, 1.0, 2.0), checkpoint_s=None, pair_s=None,
        how=analysis.costs.how | {"eval_s": "not separable"},
    )  # fmt: skip
    unknown = replace(analysis, costs=costs, goodput=replace(analysis.goodput, parts_s=parts))
    (row,) = (row for row in sentences.part_rows(unknown) if row.part == "eval")
    assert say(sentences.share_text(row.share), "en") == say(sentences.UNKNOWN, "en")
