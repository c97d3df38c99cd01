"""The Hugging Face Trainer: rows and times from its bars, losses and evaluations from its dictionaries."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import pytest
from tests.bars import TrainerLog, clock, drawing

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.readers.formats import hf_trainer
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text
from stepwatch.verdict import judge


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "hf-trainer"
    runs = read(source)
    assert len(runs) == 1
    return runs[0]


# --- bars ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("title", ["", "Train: "])
@pytest.mark.parametrize("step_s", [0.3, 1.7, 25.0])
def test_single_steps_come_out_of_the_smoothed_rate(step_s: float, title: str, quoted: bool) -> None:
    log = TrainerLog(step_s=step_s, title=title, quoted=quoted)
    run = the_run(log.text())
    assert run.iterations.number.tolist() == list(range(1, 401))
    true = np.array([log.times[number] for number in range(1, 401)])
    assert np.median(np.abs(run.iterations.time_s - true) / true) < 0.03
    assert abs(np.median(run.iterations.time_s) / np.median(true) - 1) < 0.01
    assert abs(run.iterations.time_s.sum() / true.sum() - 1) < 0.01
    assert run.timing is Timing.SPANS_ITERATION
    assert run.settings.count("max_iters") == 400
    assert np.isfinite(run.iterations.loss).sum() == 40
    assert run.iterations.loss[9] == float(f"{8 / 10**0.5:.4g}" if quoted else f"{8 / 10**0.5:.4f}")


def test_evaluations_and_saves_are_taken_out_of_the_next_step() -> None:
    log = TrainerLog(eval_every=50, save_every=100)
    run = the_run(log.text())
    assert len(run.iterations) == 400
    assert [e.at for e in run.evaluations] == list(range(50, 401, 50))
    assert {e.took_s for e in run.evaluations} == {12.5}
    assert {e.val_loss for e in run.evaluations} == {2.25}
    assert [c.at for c in run.checkpoints] == [100, 200, 300, 400]
    known = [c.took_s for c in run.checkpoints if c.took_s is not None]
    assert len(known) == 3  # nothing follows the last one
    assert np.mean(known) == pytest.approx(4.0, abs=0.4)
    assert run.iterations.time_s[1:].max() < 1.3 * 1.7
    answer = analyse(run)
    assert answer.costs.step_s.low <= 1.75 <= answer.costs.step_s.high * 1.01
    assert answer.costs.eval_s is not None
    assert answer.costs.eval_s.mid == pytest.approx(12.5)
    assert answer.goodput.wall_s == pytest.approx(log.elapsed, rel=0.01)  # with what follows the last step


@pytest.mark.parametrize("ended", [False, True])
def test_a_bar_that_is_drawn_again_for_a_save_is_no_term_of_its_rate(ended: bool) -> None:
    """As tqdm draws: each tenth of a second with a smoothed rate, and for other lines once more with the same one."""
    steps, step_s, save_s, every = 1403, 0.05, 1.8, 200
    now, drawn_n, drawn_s, mean_n, mean_s, rate = 0.0, 0, 0.0, 0.0, 0.0, "?it/s"
    lines = ["***** Running training *****"]
    for number in range(1, steps + 1):
        now += step_s
        if now - drawn_s >= 0.099:
            mean_n = 0.3 * (number - drawn_n) + 0.7 * mean_n
            mean_s = 0.3 * (now - drawn_s) + 0.7 * mean_s
            drawn_n, drawn_s, rate = number, now, f"{mean_n / mean_s:.2f}it/s"
            lines.append(drawing("", number, steps, now, rate))
        if number % every == 101:  # between two drawings
            lines.append(drawing("", number, steps, now, rate))
            lines.append(f"Saving model checkpoint to out/checkpoint-{number}")
            now += save_s
    if ended:
        lines.append("{'eval_loss': 0.25, 'eval_runtime': 4.0, 'epoch': 1.0}")
        lines.append(drawing("", steps, steps, now + 4, rate))
    run = the_run("\n".join(lines))
    saves = [save.took_s for save in run.checkpoints if save.took_s is not None]
    assert saves == pytest.approx([save_s] * len(saves), abs=0.15)
    assert len(saves) > 5
    assert run.iterations.time_s[1:] == pytest.approx(step_s, rel=0.15)


@pytest.mark.parametrize("drawn_behind", [False, True])
@pytest.mark.parametrize("eval_s", [8, 40])
def test_an_evaluation_below_the_bar_that_was_drawn_behind_it_is_in_that_bar(eval_s: int, drawn_behind: bool) -> None:
    """As a notebook keeps it: few drawings, and the dictionary below the one that followed the evaluation."""
    epochs, per_epoch, step_s, lines = 6, 780, 0.125, []
    steps = epochs * per_epoch
    for number in sorted({*range(500, steps, 500), *range(per_epoch, steps + 1, per_epoch)}):
        epoch, in_epoch = divmod(number, per_epoch)
        here = not in_epoch
        elapsed = number * step_s + (epoch - (here and not drawn_behind)) * eval_s
        shown = min(number + (here and drawn_behind), steps)
        lines.append(drawing("", shown, steps, elapsed, f"{1 / step_s:.2f}it/s"))
        if here:
            lines.append(f"{{'eval_loss': 0.25, 'eval_runtime': {eval_s}.0, 'epoch': {epoch}.0}}")
    whole = steps * step_s + epochs * eval_s
    lines.append(f"{{'train_runtime': {whole}, 'train_steps_per_second': {steps / whole:.3f}, 'epoch': {epochs}.0}}")
    run = the_run("\n".join(lines))
    answer = analyse(run)
    assert answer.costs.step_s.mid == pytest.approx(step_s, rel=0.02)
    assert answer.goodput.wall_s == pytest.approx(whole, rel=0.005)
    assert [round(e.at / per_epoch) for e in run.evaluations] == list(range(1, epochs + 1))


DEEPSPEED = (
    "[2025-02-16 16:41:53,347] [INFO] [logging.py:96:log_dist] [Rank 0] Saving model checkpoint: out/checkpoint-"
)


@pytest.mark.parametrize("twice", [False, True])
def test_a_save_that_deepspeed_tells_is_one(twice: bool) -> None:
    log = TrainerLog(save_every=100)
    theirs = [re.sub(r"Saving .*-(\d+)", DEEPSPEED + r"\1/global_step\1/mp_rank_00.pt", line) for line in log.lines()]
    plain = [
        [line, other] if twice and line != other else [other] for line, other in zip(log.lines(), theirs, strict=True)
    ]
    run = the_run("\n".join(line for lines in plain for line in lines))
    assert [c.at for c in run.checkpoints] == [100, 200, 300, 400]
    assert np.mean([c.took_s for c in run.checkpoints if c.took_s is not None]) == pytest.approx(4.0, abs=0.4)


def test_saves_without_a_bar_are_where_their_names_tell() -> None:
    lines = [line for line in TrainerLog(save_every=100).lines() if "%|" not in line]
    assert [c.at for c in the_run("\n".join(lines)).checkpoints] == [100, 200, 300, 400]


def test_bars_of_the_evaluation_are_not_the_training() -> None:
    log = TrainerLog(steps=60, eval_every=10)
    assert the_run(log.text()).iterations.number.tolist() == list(range(1, 61))


def evaluated_often(epochs: int, eval_s: float) -> list[str]:
    """Of a training of 20 epochs with 130 steps of 2 s: its bar is drawn where an evaluation begins and ends.

    The loss of each epoch follows on the bar of the evaluation, which is closed last.
    """
    lines, elapsed = [drawing("", 0, 2600, 0, "?it/s")], 0.0
    for epoch in range(1, epochs + 1):
        elapsed += 260
        if epoch > 1:
            lines.append(f"{{'loss': {4 / epoch}, 'learning_rate': 0.0014, 'epoch': {epoch - 0.2:.2f}}}")
        lines.append(drawing("", 130 * epoch, 2600, elapsed, "2.00s/it"))
        lines += [drawing("", n, 40, eval_s / 40 * n, "4.00s/it") for n in range(40)]
        elapsed += eval_s
        lines.append(f"{{'eval_loss': 3.4, 'eval_runtime': {eval_s}, 'epoch': {epoch}.0}}")
        lines += [drawing("", 130 * epoch, 2600, elapsed, "2.00s/it"), drawing("", 40, 40, eval_s, "4.00s/it")]
    return lines


@pytest.mark.parametrize("eval_s", [160.0, 560.0])  # also more than the steps of an epoch take
@pytest.mark.parametrize("epochs", [2, 3, 6])
def test_losses_behind_the_bar_of_an_evaluation_do_not_make_it_the_training(epochs: int, eval_s: float) -> None:
    run = the_run("\n".join(evaluated_often(epochs, eval_s)))
    assert (run.iterations.number[-1], run.settings.count("max_iters")) == (130 * epochs, 2600)
    assert [e.at for e in run.evaluations] == [130 * n for n in range(1, epochs + 1)]
    assert analyse(run).costs.step_s.mid == pytest.approx(2.0, rel=0.02)


def test_a_training_inside_of_another_bar_is_the_training() -> None:
    folds = [line for n in range(3) for line in (drawing("", n, 3, 700.0 * n, "700s/it"), *TrainerLog(seed=n).lines())]
    assert [run.iterations.number[-1] for run in read(from_text("\n".join(folds)))] == [400] * 3


def test_bars_without_any_dictionary_are_read() -> None:
    lines = [line for line in TrainerLog().lines() if "%|" in line]
    assert len(the_run("\n".join(lines)).iterations) == 400


@pytest.mark.parametrize("title", ["Loading weights: ", "Map (num_proc=4): ", "Tokenizing: "])
def test_other_bars_are_no_training(title: str) -> None:
    lines = TrainerLog(title=title, log_every=1000).lines()[:-1]
    assert detect(from_text("\n".join(lines))) is None


def test_lines_of_a_launcher_and_dictionaries_behind_a_bar() -> None:
    lines = TrainerLog(log_every=5).lines()
    plain = the_run("\n".join(lines)).iterations
    with_rank = the_run("\n".join(f"[rank0]: {line}" for line in lines)).iterations
    joined = the_run("\n".join(lines).replace("]\n\n{'loss'", "]{'loss'")).iterations
    for other in (with_rank, joined):
        assert np.allclose(other.time_s, plain.time_s)
        assert np.array_equal(other.loss, plain.loss, equal_nan=True)


def test_a_log_without_its_beginning() -> None:
    log = TrainerLog()
    lines = log.lines()
    run = the_run("\n".join(lines[200:500]))
    true = np.array([log.times[number] for number in run.iterations.number.tolist()])
    assert abs(np.median(run.iterations.time_s) / np.median(true) - 1) < 0.02
    assert not run.has_header


def test_a_resumed_run_counts_its_own_steps_only() -> None:
    log = TrainerLog(start=250)
    run = the_run(log.text())
    assert run.resumed
    assert run.iterations.number[0] == 251
    assert run.iterations.time_s[0] == pytest.approx(log.times[251], rel=0.05)


def test_two_runs_in_one_log() -> None:
    text = TrainerLog(steps=50).text() + TrainerLog(steps=50, step_s=3.0, seed=2).text()
    runs = read(from_text(text))
    assert [len(run.iterations) for run in runs] == [50, 50]
    assert np.median(runs[1].iterations.time_s) == pytest.approx(3.0, rel=0.05)


def test_two_runs_of_different_length_in_one_log() -> None:
    text = TrainerLog(steps=60).text() + TrainerLog(steps=40, seed=2).text()
    assert [len(run.iterations) for run in read(from_text(text))] == [60, 40]


@pytest.mark.parametrize("summary", [True, False])
def test_a_bar_of_which_only_its_begin_was_kept_is_that_of_the_training(summary: bool) -> None:
    def kept(log: TrainerLog) -> list[str]:  # what is left of a terminal: the empty bar, dictionaries, the full bar
        lines = log.lines()
        told = [line for line in lines[:-1] if line.startswith("{")]
        full = [line for line in lines if f"| {log.steps}/{log.steps}" in line][:1]
        return [lines[0], *told, *(lines[-1:] if summary else []), *full]

    first, second = TrainerLog(steps=60, per_epoch=20, eval_every=20), TrainerLog(steps=45, per_epoch=15, eval_every=15)
    evaluated = "100%|██████████| 38/38 [00:05<00:00,  7.60it/s]"
    runs = read(from_text("\n".join([*kept(first)[1:], evaluated, *kept(second), evaluated])))
    assert [run.iterations.number.tolist() for run in runs] == [[60], [45]]
    assert [run.settings.count("max_iters") for run in runs] == [60, 45]
    if summary:
        assert [[e.at for e in run.evaluations] for run in runs] == [[20, 40, 60], [15, 30, 45]]


def test_dictionaries_that_came_late_are_placed_by_their_epoch() -> None:
    lines = TrainerLog(log_every=10).lines()
    bars = [line for line in lines if "%|" in line]
    told = [line for line in lines if line.startswith("{")]
    run = the_run("\n".join(bars + told))
    assert np.flatnonzero(np.isfinite(run.iterations.loss)).tolist() == list(range(9, 400, 10))


@pytest.mark.parametrize("banner", ["", "  Num Epochs = 3\n"])
def test_a_run_of_several_epochs_that_stopped_in_the_first_has_its_evaluations_where_they_were(banner: str) -> None:
    lines = TrainerLog(steps=300, per_epoch=100, eval_every=25).lines()
    cut = next(i for i, line in enumerate(lines) if "| 90/300" in line)
    run = the_run(banner + "\n".join(lines[:cut]))
    assert [e.at for e in run.evaluations] == [25, 50, 75]
    assert np.flatnonzero(np.isfinite(run.iterations.loss)).tolist() == list(range(9, 89, 10))
    assert "stall" not in {finding.code for finding in analyse(run).findings}


def test_dictionaries_that_came_late_in_an_unfinished_run_are_placed_by_the_planned_epochs() -> None:
    lines = TrainerLog(steps=300, per_epoch=100, eval_every=25).lines()
    cut = next(i for i, line in enumerate(lines) if "| 151/300" in line)
    bars = [line for line in lines[:cut] if "%|" in line]
    told = [line for line in lines[:cut] if line.startswith("{")]
    run = the_run("  Num Epochs = 3\n  Total optimization steps = 300\n" + "\n".join(bars + told))
    assert [e.at for e in run.evaluations] == [25, 50, 75, 100, 125, 150]


def test_each_run_of_a_log_has_its_own_epochs() -> None:
    first = TrainerLog(steps=60, per_epoch=20, eval_every=20).lines()
    second = TrainerLog(steps=90, per_epoch=45, eval_every=45, seed=2).lines()
    late = [[line for line in lines if "%|" in line or line.startswith("{")] for lines in (first, second)]
    text = "\n".join(line for lines in late for line in sorted(lines, key=lambda line: line.startswith("{")))
    assert [[e.at for e in run.evaluations] for run in read(from_text(text))] == [[20, 40, 60], [45, 90]]


def in_pages(lines: list[str], page: int) -> str:
    """The dictionaries held back until so many are there, with the digits that older versions print."""
    out: list[str] = []
    held: list[str] = []
    for line in lines:
        if not line.startswith("{"):
            out.append(line)
            continue
        held.append(re.sub(r"'epoch': ([\d.]+)", lambda found: f"'epoch': {round(float(found[1]), 2)}", line))
        if len(held) >= page:
            out += held
            held.clear()
    return "\n".join(out + held)


@pytest.mark.parametrize("start", [0, 100])
def test_evaluations_that_came_late_are_taken_out_where_they_were(start: int) -> None:
    log = TrainerLog(steps=700, eval_every=70, per_epoch=1000, start=start)
    run = the_run(in_pages(log.lines(), page=3))
    assert [e.at for e in run.evaluations] == list(range(70 * (1 + (start > 0)), 701, 70))
    analysis = analyse(run)
    assert analysis.goodput.wall_s == pytest.approx(log.elapsed, rel=0.005)
    assert "stall" not in {finding.code for finding in analysis.findings}


def test_planned_epochs_that_a_number_of_steps_cut_short_place_nothing() -> None:
    lines = TrainerLog(steps=60, per_epoch=2000, eval_every=20).lines()
    run = the_run("  Num Epochs = 1 | Total steps = 60\n" + "\n".join(lines[:-1]))
    assert [e.at for e in run.evaluations] == [20, 40, 60]


# --- several trainings ------------------------------------------------------------------------------------------------


def summary(runtime: float, steps: int = 8) -> str:
    rate = round(steps / runtime, 3)
    return str({"train_runtime": runtime, "train_steps_per_second": rate, "train_loss": 1.5, "epoch": 1.0})


def test_trainings_of_which_only_the_ends_were_kept() -> None:
    """The last position of a bar stands behind the summary, on a terminal of unknown width without a drawing."""
    times = (11.2237, 9.3417, 9.3369, 9.3369)
    ends = [f"{summary(took)}\n100% 8/8 [{clock(took)}<00:00,  {took / 8:.2f}s/it]\nsaved\n" for took in times[:3]]
    runs = read(from_text("  0% 0/8 [00:00<?, ?it/s]a warning\n" + "".join(ends)))
    assert [analyse(run).goodput.wall_s for run in runs] == pytest.approx(times[:3])


def test_trainings_without_bars_end_with_their_summaries() -> None:
    first, second = TrainerLog(steps=60, per_epoch=20), TrainerLog(steps=90, per_epoch=30, seed=2, step_s=0.7)
    text = "\n".join(line for log in (first, second) for line in log.lines() if line.startswith("{"))
    runs = read(from_text(text))
    assert [analyse(run).goodput.iterations for run in runs] == [60, 90]
    assert [analyse(run).goodput.wall_s for run in runs] == pytest.approx([first.elapsed, second.elapsed], rel=1e-3)


def test_what_every_rank_prints_at_the_end_is_one_training() -> None:
    told = "".join(
        f"TrainOutput(global_step=8, training_loss=1.5, metrics={summary(took)})\n" for took in (11.2, 11.21, 11.22)
    )
    (run,) = read(from_text(summary(11.2) + "\n" + summary(11.2) + "\n" + told))
    assert analyse(run).goodput.iterations == 8


def test_a_summary_between_two_draws_of_the_last_position_ends_no_bar() -> None:
    lines = TrainerLog(steps=60).lines()
    last = next(line for line in reversed(lines) if "60/60" in line)
    run = the_run("\n".join([*lines, lines[-1], last, last]))
    assert run.logged == 60


def test_the_bar_of_a_later_inference_is_not_the_training() -> None:
    inference = " 33%|███       | 1/3 [00:00<00:00, 84.13it/s]\n100%|██████████| 3/3 [00:00<00:00, 84.13it/s]\n"
    output = f"TrainOutput(global_step=804, training_loss=1.5, metrics={summary(1727.7, 804)})\n"
    (run,) = read(from_text(output + inference))
    assert analyse(run).goodput.iterations == 804
    assert analyse(run).goodput.wall_s == pytest.approx(1727.7)


@pytest.mark.parametrize("bar", ["", "100%|██████████| 60/60 [01:51<00:00,  1.86s/it]\n"])
def test_the_mean_of_a_run_has_its_saves_in_it_and_shows_no_single_iteration(bar: str) -> None:
    saved = "Saving model checkpoint to out/checkpoint-60\n"
    (run,) = read(from_text(saved + summary(111.9, 60) + "\n" + bar))
    analysis = analyse(run)
    assert analysis.goodput.wall_s == pytest.approx(111.9)
    assert analysis.phases.checkpoints == 1
    assert not {"invisible_checkpoints", "invisible_evaluations"} & {finding.code for finding in analysis.findings}
    assert "does not show single iterations" in judge(analysis).text.key


def test_evaluations_that_the_trainer_timed_are_not_in_the_mean() -> None:
    log = TrainerLog(steps=60, eval_every=20)
    (run,) = read(from_text("\n".join(line for line in log.lines() if line.startswith("{"))))
    (finding,) = (finding for finding in analyse(run).findings if finding.code == "averaged_times")
    assert "evaluations included" not in finding.message.key


def test_a_log_that_was_cut_in_its_only_dictionary_is_that_of_the_trainer() -> None:
    bars = [line for line in TrainerLog(steps=60).lines() if "%|" in line]
    cut = "{'loss': 0.6931, 'grad_norm': 3.1875, 'learning_rate': 3.7e-08, 'rewards/chosen': 0.0002, 'rew"
    run = the_run("\n".join(["epoch and loss", *bars, " " * 40, "", bars[-1] + cut]))
    assert run.iterations.number[-1] == 60


def test_a_percentage_in_any_text_looks_like_no_iteration() -> None:
    run = the_run("top 10% of 12709 samples [removed]\n" + TrainerLog(steps=60).text())
    assert run.unread_count == 0


def test_bars_that_skip_positions_are_means() -> None:
    lines = [
        line
        for line in TrainerLog(step_s=2.0).lines()
        if "%|" not in line or any(f"| {n}/" in line for n in range(0, 401, 20))
    ]
    run = the_run("\n".join(lines))
    assert run.timing is Timing.SPANS_LOG_INTERVAL
    assert np.median(run.iterations.time_s) == pytest.approx(2.05, rel=0.02)


def test_two_positions_of_one_second_are_told_apart_by_the_rate() -> None:
    text = "  3%|▎         | 12/345 [00:07<06:50,  1.23s/it]\n  4%|▍         | 13/345 [00:07<05:03,  1.09it/s]\n"
    times = the_run(text).iterations.time_s
    assert times.tolist() == pytest.approx([1.23, (1 / 1.09 - 0.7 * 1.23) / 0.3], rel=0.01)


@pytest.mark.parametrize("rate", ["?it/s", "  0.00it/s"])
def test_a_clock_that_stands_still_is_no_measurement(rate: str) -> None:
    lines = [f"  4%|▍         | {n}/345 [00:07<05:03, {rate}]" for n in (12, 13, 14)]
    with pytest.raises(NoIterations, match="nothing in it shows their time"):
        read(from_text("\n".join([*lines, "{'loss': 2.0, 'epoch': 0.1}"])))


def test_a_process_whose_clock_did_not_move_is_left_out_of_several() -> None:
    begun = [f"  4%|▍         | {n}/60 [00:03<05:03, ?it/s]" for n in (1, 2, 3)]
    runs = read(from_text(TrainerLog(steps=60).text() + "\n".join(begun)))
    assert [len(run.iterations) for run in runs] == [60]


def test_several_data_sets_are_one_evaluation() -> None:
    lines = TrainerLog(steps=30, log_every=10).lines()
    place = next(i for i, line in enumerate(lines) if "| 20/30" in line)
    lines[place + 1 : place + 1] = [
        "{'eval_a_loss': 2.0, 'eval_a_runtime': 3.0, 'epoch': 0.1}",
        "{'eval_b_loss': 2.5, 'eval_b_runtime': 4.0, 'epoch': 0.1}",
    ]
    (evaluation,) = the_run("\n".join(lines)).evaluations
    assert (evaluation.at, evaluation.val_loss, evaluation.took_s) == (20, 2.0, 7.0)


# --- facts -----------------------------------------------------------------------------------------------------------

BANNER = """\
***** Running training *****
  Num examples = 12,800
  Num Epochs = 2
  Instantaneous batch size per device = 8
  Total train batch size (w. parallel, distributed & accumulation) = 64
  Gradient Accumulation steps = 2
  Total optimization steps = 400
  Number of trainable parameters = 124,439,808
"""


def test_the_banner_tells_the_batch_and_the_cards() -> None:
    settings = the_run(BANNER + TrainerLog().text()).settings
    assert {
        name: settings[name].value
        for name in ("batch_size", "world_size", "gradient_accumulation_steps", "max_iters", "n_params")
    } == {
        "batch_size": 8,
        "world_size": 4,
        "gradient_accumulation_steps": 8,
        "max_iters": 400,
        "n_params": 124439808,
    }


def test_all_parameters_count_where_only_some_are_trained() -> None:
    peft = "trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.06\n"
    assert the_run(peft + BANNER + TrainerLog().text()).settings.number("n_params") == 6742609920


def test_counted_tokens_are_those_of_an_iteration() -> None:
    text = TrainerLog().text().replace("'grad_norm': 0.6132, ", "'grad_norm': 0.6132, 'num_tokens': NUMBER, ")
    for number in range(40):
        text = text.replace("NUMBER", str(40960.0 * (number + 1)), 1)
    assert the_run(text).settings.count("tokens_per_iter") == 4096


@pytest.mark.parametrize("held_back", [False, True])
def test_tokens_are_counted_over_the_whole_also_where_the_output_came_late(held_back: bool) -> None:
    lines, counted = [], 0
    for line in TrainerLog().lines():
        if line.startswith("{'loss'"):
            counted += 10 * (4000 if len(lines) % 3 else 4300)
            lines.append(line.replace("'grad_norm'", f"'num_tokens': {counted}.0, 'grad_norm'"))
        else:
            lines.append(line)
    first = next(int(line.split("'num_tokens': ")[1].split(".")[0]) for line in lines if "num_tokens" in line)
    told = sorted(lines, key=lambda line: line.startswith("{")) if held_back else lines
    assert the_run("\n".join(told)).settings.count("tokens_per_iter") == round((counted - first) / 390)


# --- without a bar ---------------------------------------------------------------------------------------------------


def test_the_summary_alone_gives_the_mean_of_the_run() -> None:
    log = TrainerLog(eval_every=100, log_every=20)
    lines = [line for line in log.lines() if "%|" not in line]
    run = the_run("\n".join(lines))
    assert run.timing is Timing.SPANS_RUN
    assert run.iterations.number.tolist() == pytest.approx(list(range(20, 401, 20)), abs=2)
    assert run.iterations.time_s[0] == pytest.approx((log.elapsed - 4 * 12.5) / 400, rel=0.01)
    assert len(run.evaluations) == 4
    answer = analyse(run)
    assert "averaged_times" in {finding.code for finding in answer.findings}
    assert not answer.phases.of(4).any()  # no first iteration in a mean


@pytest.mark.parametrize("repeated", [False, True])
def test_evaluations_after_the_summary_are_not_in_its_time(repeated: bool) -> None:
    log = TrainerLog(eval_every=100, log_every=20)
    lines = [line for line in log.lines() if "%|" not in line]
    after = "{'eval_loss': 2.1, 'eval_runtime': 55.0, 'epoch': 2.0}"
    again = [line for line in lines for _ in range(1 + (repeated and "eval_loss" in line))]
    run = the_run("\n".join([*again, after, f"2024-05-04 11:00:00 INFO: at last {after}"]))
    assert run.iterations.time_s[0] == pytest.approx((log.elapsed - 4 * 12.5) / 400, rel=1e-3)
    assert [(e.at, e.took_s) for e in run.evaluations] == [(n, 12.5) for n in (100, 200, 300, 400)]


def test_the_steps_done_are_those_of_the_output_and_not_of_the_plan() -> None:
    text = (
        "TrainOutput(global_step=550, training_loss=2.46, metrics={'train_runtime': 110.0, "
        "'train_samples_per_second': 46.4, 'train_steps_per_second': 11.7, 'train_loss': 2.46, 'epoch': 12.8})"
    )
    run = the_run(text)
    assert run.iterations.number.tolist() == [550]
    assert run.iterations.time_s.tolist() == pytest.approx([0.2])
    assert run.settings.count("max_iters") == 550


def test_a_run_that_stopped_in_an_epoch_before_the_planned_ones_has_done_fewer_steps() -> None:
    log = TrainerLog(steps=200, per_epoch=100, log_every=20)
    lines = [line for line in log.lines() if "%|" not in line]
    lines[-1] = lines[-1].replace(str(round(200 / log.elapsed, 3)), str(round(500 / log.elapsed, 3)))
    run = the_run("  Num Epochs = 5\n" + "\n".join(lines))
    assert run.iterations.number[-1] == pytest.approx(200, abs=1)
    assert run.iterations.time_s[0] == pytest.approx(log.elapsed / 200, rel=0.005)


@pytest.mark.parametrize(
    ("shape", "done"),
    [(lambda part: 1 - part, 200), (lambda part: min(10 * part, 1.05 * (1 - part)), 200), (lambda part: 1.0, 500),
     (lambda part: 0.5 + 0.5 * math.cos(math.pi * part), 500)],
)  # fmt: skip
def test_learning_rates_that_fall_in_a_line_lead_to_the_planned_end(shape: Callable[[float], float], done: int) -> None:
    told = [
        f"{{'loss': 2.0, 'learning_rate': {2e-5 * shape(step / 500)}, 'epoch': {step / 100}}}"
        for step in range(10, 201, 10)
    ]
    end = "{'train_runtime': 400.0, 'train_steps_per_second': 1.25, 'train_loss': 1.9, 'epoch': 2.0}"
    run = the_run("\n".join([*told, end]))  # 1.25 is by the 500 steps of five epochs
    assert run.iterations.number[-1] == done
    assert run.iterations.time_s[0] == pytest.approx(400 / done)


@pytest.mark.parametrize("early", [False, True])
def test_a_run_with_a_summary_has_ended(early: bool) -> None:
    log = TrainerLog(steps=203, per_epoch=100)
    lines = log.lines()
    if early:
        lines = [line.replace("/203 ", "/500 ") for line in lines]
    assert analyse(the_run("\n".join(lines))).forecast.done
    alone = the_run("\n".join(line for line in lines if "%|" not in line))
    assert alone.iterations.number[-1] == pytest.approx(203, abs=1)
    assert analyse(alone).forecast.done


def test_rounded_epochs_and_rates_give_way_to_losses_at_equal_distances() -> None:
    lines = [f"{{'loss': 2.0, 'learning_rate': 1e-05, 'epoch': {round(10 * n / 900, 2)}}}" for n in range(1, 901)]
    end = "{'train_runtime': 11174.9, 'train_steps_per_second': 0.081, 'train_loss': 0.05, 'epoch': 10.0}"
    run = the_run("\n".join([*lines, end]))
    assert run.iterations.number.tolist() == list(range(1, 901))  # 0.081 by the time would be 905
    assert run.settings.count("max_iters") == 900


def test_a_save_at_the_end_tells_the_steps_better_than_a_rounded_rate() -> None:
    lines = [f"{{'loss': 2.0, 'learning_rate': 1e-05, 'epoch': {round(20 * n / 1971, 2)}}}" for n in range(1, 99)]
    end = "{'train_runtime': 14003.8, 'train_steps_per_second': 0.141, 'train_loss': 0.05, 'epoch': 1.0}"
    run = the_run("\n".join([*lines, "Saving model checkpoint to out/checkpoint-1971", end]))
    assert run.iterations.number[-2:].tolist() == [1960, 1971]  # 0.141 by the time would be 1975
    assert run.settings.count("max_iters") == 1971


def test_an_evaluation_by_a_rounded_epoch_is_where_its_distance_to_the_others_puts_it() -> None:
    log = TrainerLog(steps=160, per_epoch=160.25, eval_every=50, step_s=28.0, eval_s=130.0)
    lines = [re.sub(r"'epoch': ([\d.]+)", lambda m: f"'epoch': {round(float(m[1]), 2)}", x) for x in log.lines()]
    run = the_run("\n".join(sorted(lines, key=lambda line: line.startswith("{"))))
    assert [e.at for e in run.evaluations] == [50, 100, 150]
    assert np.flatnonzero(np.isfinite(run.iterations.loss)).tolist() == list(range(9, 160, 10))
    assert "stall" not in {finding.code for finding in analyse(run).findings}


def test_evaluations_after_epochs_and_at_an_end_between_them_are_where_they_were() -> None:
    lines = TrainerLog(steps=1000, per_epoch=334, eval_every=334).lines()
    lines.insert(-1, "{'eval_loss': 2.0, 'eval_runtime': 12.5, 'epoch': 2.99}")
    lines[-1] = lines[-1].replace("'epoch': 2.994", "'epoch': 2.994011976")
    run = the_run("\n".join(sorted(lines, key=lambda line: line.startswith("{"))))
    assert [e.at for e in run.evaluations][:2] == [334, 668]


def test_dictionaries_without_any_time_say_so() -> None:
    lines = [line for line in TrainerLog().lines() if "%|" not in line][:-1]
    with pytest.raises(NoIterations, match="40 logged steps, but nothing in it shows their time"):
        read(from_text("\n".join(lines)))


def test_a_clock_in_front_of_the_dictionaries_is_used() -> None:
    log = TrainerLog(log_every=10, steps=200)
    told = [line for line in log.lines() if line.startswith("{'loss'")]
    ends = np.cumsum([log.times[n] for n in range(1, 201)])[9::10]
    lines = [
        f"2024-05-04 {9 + int(end) // 3600:02d}:{int(end) // 60 % 60:02d}:{int(end) % 60:02d},000 - INFO - {line}"
        for end, line in zip(ends, told, strict=True)
    ]
    run = the_run("  Total optimization steps = 200\n" + "\n".join(lines))
    assert np.median(run.iterations.time_s) == pytest.approx(1.74, rel=0.02)


# --- LLaMA-Factory and ms-swift --------------------------------------------------------------------------------------


def factory_lines(log: TrainerLog) -> list[str]:
    log.lines()
    elapsed, lines = 0.0, []
    for step, took in log.times.items():
        elapsed += took
        row = {"current_steps": step, "total_steps": log.steps, "epoch": step / 200, "percentage": 1.0}
        passed = {
            "elapsed_time": f"{int(elapsed) // 3600}:{int(elapsed) // 60 % 60:02d}:{int(elapsed) % 60:02d}",
            "remaining_time": "0:01:00",
        }
        if step % 10 == 0:
            lines.append(json.dumps(row | {"loss": 2.0, "lr": 1e-5} | passed))
        if step % 100 == 0:
            elapsed += log.eval_s
            passed["elapsed_time"] = f"{int(elapsed) // 3600}:{int(elapsed) // 60 % 60:02d}:{int(elapsed) % 60:02d}"
            lines.append(json.dumps(row | {"eval_loss": 1.9} | passed))
    return lines


def test_llama_factory_tells_steps_and_a_clock() -> None:
    log = TrainerLog(step_s=2.0)
    run = the_run("\n".join(factory_lines(log)))
    assert run.iterations.number.tolist() == list(range(10, 401, 10))
    true = np.array([log.times[number] for number in range(11, 401)])
    assert np.median(run.iterations.time_s[1:]) == pytest.approx(true.mean(), rel=0.02)
    assert [e.at for e in run.evaluations] == [100, 200, 300, 400]
    assert all(abs((e.took_s or 0) - 12.5) <= 1.0 for e in run.evaluations)
    assert run.settings.count("max_iters") == 400


def test_a_clock_of_llama_factory_goes_on_after_a_day() -> None:
    lines = [
        json.dumps({
            "current_steps": step, "total_steps": 400, "loss": 2.0, "epoch": step / 200,
            "elapsed_time": str(timedelta(seconds=500 * step)), "remaining_time": "1 day, 0:00:00",
        })
        for step in range(10, 401, 10)
    ]  # fmt: skip
    run = the_run("\n".join(lines))
    assert run.iterations.number.tolist() == list(range(10, 401, 10))
    assert run.iterations.time_s.tolist() == [500.0] * 40
    assert len(the_run("\n".join(lines[20:])).iterations) == 20  # a log that begins behind the first day


def test_the_last_line_of_llama_factory_has_no_loss() -> None:
    lines = factory_lines(TrainerLog(step_s=2.0))
    lines.append(
        lines[-2].replace('"loss": 2.0', '"loss": null').replace('"current_steps": 400', '"current_steps": 405')
    )
    run = the_run("\n".join(lines))
    assert run.iterations.number[-1] == 405
    assert not np.isinf(run.iterations.loss).any()


def factory_row(step: int, elapsed: float) -> str:
    return json.dumps({
        "current_steps": step, "total_steps": 900, "loss": 2.0, "epoch": step / 300,
        "elapsed_time": str(timedelta(seconds=int(elapsed))), "remaining_time": "0:01:00",
    })  # fmt: skip


def test_two_that_write_into_one_file_are_no_restarts() -> None:
    ahead = [(9000 + 15.0 * n, 10 * n) for n in range(1, 60)]
    behind = [(moment + 12.0, step, moment + 9.0) for moment, step in ahead]  # whose clock began later
    moments = sorted([(moment, step, moment) for moment, step in ahead] + behind)
    (run,) = read(from_text("\n".join(factory_row(step, clock) for _, step, clock in moments)))
    assert np.median(run.iterations.time_s) == pytest.approx(1.5, rel=0.1)


@pytest.mark.parametrize(("killed_at", "resumed_at"), [(400, 300), (30, 0), (400, 390)])
def test_a_clock_that_starts_again_is_another_process(killed_at: int, resumed_at: int) -> None:
    before = [factory_row(step, 2.0 * step + 40) for step in range(10, killed_at + 1, 10)]
    after = [factory_row(step, 2.5 * (step - resumed_at) + 30) for step in range(resumed_at + 10, 600, 10)]
    runs = read(from_text("\n".join(before + after)))
    assert [int(run.iterations.number[-1]) for run in runs] == [killed_at, 590]


@pytest.mark.parametrize("last", ['"epoch": 2.03', '"loss": null, "epoch": 2.03'])
def test_the_last_line_of_llama_factory_is_the_end(last: str) -> None:
    lines = factory_lines(TrainerLog(step_s=2.0))
    lines.append(f'{{"current_steps": 405, "total_steps": 900, {last}, "elapsed_time": "0:15:08"}}')
    run = the_run("\n".join(lines))
    assert run.iterations.number[-1] == 405
    assert analyse(run).forecast.done


def test_ms_swift_ends_with_an_evaluation_and_all_of_its_history() -> None:
    lines = swift_lines(TrainerLog())[9:395:10]
    place = '"epoch": 1.0, "global_step/max_steps": "400/400", "elapsed_time": "12m 0s"'
    lines += [
        f'{{"eval_loss": 1.2, "eval_runtime": 15.0, {place}}}',
        f'{{"train_runtime": 720.0, "train_steps_per_second": 0.55, {place}}}',
        '{"model_parameter_info": "Peft: 8212.5588M Params (21.8M Trainable)", "log_history": [{"loss": 20.5, "epoch": '
        '0.002, "step": 1}, {"eval_loss": 1.3, "eval_runtime": 9.0, "epoch": 1.0, "step": 400}]}',
    ]
    run = the_run("\n".join(lines))
    assert run.iterations.number[-2:].tolist() == [390, 400]
    assert np.isnan(run.iterations.loss[-1])
    assert [(e.at, e.took_s) for e in run.evaluations] == [(400, 15.0)]
    assert analyse(run).forecast.done


def swift_lines(log: TrainerLog, *, before: int = 0) -> list[str]:
    log.lines()
    elapsed, lines = 0.0, []
    for step, took in log.times.items():
        elapsed += took
        whole = round(elapsed)
        hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
        text = (f"{hours}h " if hours else "") + (f"{minutes}m " if minutes or hours else "") + f"{seconds}s"
        lines.append(json.dumps({
            "loss": 1.25756836, "grad_norm": 8.5, "learning_rate": 1e-6, "epoch": step / 200,
            "global_step/max_steps": f"{step}/{log.steps}", "elapsed_time": text, "remaining_time": "1s",
            "memory(GiB)": 76.61, "train_speed(s/it)": round(elapsed / (step - before), 6),
        }))  # fmt: skip
    return lines


def test_ms_swift_tells_a_fine_mean() -> None:
    log = TrainerLog()
    run = the_run("\n".join(swift_lines(log)))
    assert np.allclose(run.iterations.time_s, list(log.times.values()), atol=2e-3)
    assert run.iterations.loss[0] == pytest.approx(1.25756836, abs=1e-12)
    assert run.settings.count("max_iters") == 400


@pytest.mark.parametrize("quote", ['"', "'"])
def test_dictionaries_whose_line_ends_became_spaces_are_told_apart(quote: str) -> None:
    lines = swift_lines(TrainerLog())
    lines.insert(200, '{"eval_loss": 1.5, "eval_runtime": 0.001, "epoch": 1.0, "global_step/max_steps": "200/400"}')
    apart, joined = (the_run(end.join(lines).replace('"', quote)) for end in ("\n", " "))
    for column in ("number", "time_s", "loss"):
        assert getattr(joined.iterations, column).tolist() == getattr(apart.iterations, column).tolist()
    assert [(e.at, e.val_loss) for e in joined.evaluations] == [(200, 1.5)]


def test_an_older_ms_swift_tells_steps_of_a_second() -> None:
    log = TrainerLog(step_s=4.0)
    log.lines()
    ends = np.cumsum(list(log.times.values()))
    lines = [
        f"{{'loss': 1.2, 'memory(GiB)': 16.79, 'train_speed(iter/s)': {step / ends[step - 1]:.6f}, "
        f"'epoch': {step / 200:.2f}, 'global_step': {step}}}"
        for step in range(5, 401, 5)
    ]
    lines.insert(40, "{'eval_loss': 1.0, 'eval_runtime': 0.01, 'epoch': 1.0, 'global_step': 200}")
    run = the_run("\n".join(lines))
    assert run.iterations.number.tolist() == list(range(5, 401, 5))
    assert np.allclose(run.iterations.time_s[1:], np.diff(ends[4::5]) / 5, atol=0.03)
    assert [e.at for e in run.evaluations] == [200]


def test_ms_swift_resumed() -> None:
    log = TrainerLog(start=200, steps=600)
    run = the_run("\n".join(swift_lines(log, before=200)))
    assert np.allclose(run.iterations.time_s[1:], list(log.times.values())[1:], atol=2e-3)


def test_a_clock_in_days() -> None:
    assert hf_trainer._duration("1 day, 2:03:04") == 86400 + 2 * 3600 + 184
    assert hf_trainer._duration("2d 1h 0m 5s") == 2 * 86400 + 3605
    assert np.isnan(hf_trainer._duration("soon"))
    assert clock(3725) == "1:02:05"


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_accidents_are_answered(seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(TrainerLog(steps=80, eval_every=20, save_every=40).text().encode())
    for _ in range(20):
        place = rng.randrange(len(data))
        data[place : place + rng.randrange(30)] = bytes(rng.randrange(256) for _ in range(rng.randrange(12)))
    for run in read(from_text(data.decode("utf-8", "replace"))):
        assert len(run.iterations) > 0
        assert np.isfinite(run.iterations.time_s).all()
        analyse(run)


@pytest.mark.parametrize("cut", range(1, 400, 7))
def test_a_log_cut_anywhere_is_answered(cut: int) -> None:
    text = TrainerLog(steps=12, log_every=3, eval_every=6).text()
    try:
        for run in read(from_text(text[: len(text) * cut // 400])):
            analyse(run)
    except NoIterations:
        pass


@pytest.mark.parametrize(
    "line",
    ["{'loss': 'x', 'epoch': 'y'}", "{'loss': nan, 'epoch': nan}", "{'train_runtime': 0, 'epoch': 0}",
     "{'eval_loss': inf, 'eval_runtime': -1, 'epoch': 1e400}", "100%|██| 5/5 [00:00<00:00, 0.00it/s]",
     "  0%|          | 99999999999/1 [99:99:99<?, ?it/s]",
     '{"current_steps": 1e9, "total_steps": -5, "loss": 1, "epoch": 1, "elapsed_time": "x"}',
     '{"current_steps": 10, "total_steps": inf, "epoch": 0.1, "elapsed_time": "0:02:12"}',
     '{"current_steps": inf, "total_steps": 20, "epoch": 0.1, "elapsed_time": "0:02:12"}'],
)  # fmt: skip
def test_strange_lines_never_raise(line: str) -> None:
    for text in (line, f"{line}\n{line}\n", TrainerLog(steps=20).text() + line):
        try:
            for run in read(from_text(text)):
                analyse(run)
        except NoIterations:
            pass


def test_a_loss_that_is_no_number() -> None:
    run = the_run(TrainerLog(steps=20, log_every=5).text().replace("'loss': 2.5298", "'loss': nan"))
    assert np.isinf(run.iterations.loss).sum() == 1


def test_a_key_that_only_one_of_many_dictionaries_has_is_read() -> None:
    lines = []
    for step in range(1, 3001):
        tokens = f", 'num_tokens': {4096 * step}" if step in (1500, 1501) else ""
        lines.append(f"  0%|          | {step}/3000 [{step // 60:02d}:{step % 60:02d}<10:00,  1.00s/it]")
        lines.append(f"{{'loss': 2.5, 'grad_norm': 1.0{tokens}, 'epoch': {step / 3000:.4f}}}")
    (run,) = read(from_text("\n".join(lines)), "hf-trainer")
    assert run.settings.count("tokens_per_iter") == 4096


def test_batches_beyond_the_last_step_of_an_epoch_go_into_the_next() -> None:
    """Then an epoch has a little more steps than were planned: here 17.05 for 17."""
    stamp = "[INFO|2024-11-26 22:{:02d}:{:02d}] trainer.py:2314 >> "
    told = ["***** Running training *****", "  Num examples = 2,182", "  Num Epochs = 1,000"]
    told += ["  Instantaneous batch size per device = 1", "  Gradient Accumulation steps = 64"]
    told += ["  Total train batch size (w. parallel, distributed & accumulation) = 128"]
    told += ["  Total optimization steps = 17,000"]
    lines = [stamp.format(0, 0) + line for line in told]
    for step in range(5, 2105, 5):
        text = f"{{'loss': 2.28, 'learning_rate': 2.5e-06, 'epoch': {step * 64 / 1091:.2f}}}"
        lines.append(stamp.format(step // 60, step % 60) + text)
    assert the_run("\n".join(lines)).iterations.number.tolist() == list(range(5, 2105, 5))


def test_training_completed_is_an_end() -> None:
    lines = TrainerLog(steps=100).lines()[:-40]
    assert not the_run("\n".join(lines)).ended_by_plan
    end = ["[INFO|2024-11-27 10:26:28] trainer.py:2584 >> Training completed.", "ValueError: no such file"]
    run = the_run("\n".join([*lines, *end]))
    assert run.ended_by_plan
    assert run.faults == ()


def test_an_error_behind_the_summary_is_of_another_program() -> None:
    lines = TrainerLog(steps=100).lines()
    assert the_run("\n".join([*lines, "NameError: name 'preds' is not defined"])).faults == ()
    assert the_run("\n".join([*lines[:-1], "NameError: name 'preds' is not defined"])).faults


def test_a_bar_whose_dictionaries_are_still_held_back_is_read() -> None:
    """Output into a file comes in pages, the bar at once: it is wiped out where a dictionary is to stand."""
    held = [" " * 60 if line.startswith("{") else line for line in TrainerLog(steps=400).lines()[:130] if line]
    text = "\n".join(["Loading model", "Starting GRPO training...", *held])
    run = the_run(text)
    assert run.iterations.number[-1] > 90
    assert run.settings.count("max_iters") == 400
    assert "bar_alone" in {finding.code for finding in analyse(run).findings}
    assert the_run(text.replace(" " * 60, " " * 60 + "\n")).iterations.number[-1] == run.iterations.number[-1]
    with pytest.raises(NoIterations):
        read(from_text(text.replace("Starting GRPO training...", "Asking the model")))


@pytest.mark.parametrize(
    "line",
    [
        "[transformers] Warning: The following arguments do not match the ones in the `trainer_state.json` within the "
        "checkpoint directory:",
        "The tokenizer has new PAD/BOS/EOS tokens that differ from the model config and generation config.",
        "max_steps is given, it will override any value given in num_train_epochs",
    ],
)
def test_a_bar_below_a_warning_of_the_trainer_is_its_own(line: str) -> None:
    bars = [bar for bar in TrainerLog(steps=400).lines()[:30] if "|" in bar]
    assert the_run("\n".join([line, *bars])).settings.count("max_iters") == 400
    with pytest.raises(NoIterations):
        read(from_text("\n".join(["Asking the model", *bars])))


def test_a_bar_of_more_steps_than_can_be_is_none() -> None:
    """Beside one that can be: no total could be chosen."""
    lost, row = " 80%|████████  | 200/999999999999000 [08:14<02:04,  2.47s/it]", "{'loss': 1.2, 'epoch': 0.8}"
    run = the_run("\n".join([lost, row, drawing("", 250, 400, 594, "2.47s/it")]))
    assert run.settings.count("max_iters") == 400


def test_a_rate_that_was_not_renewed_does_not_make_steps_fast() -> None:
    """After a resume its average has steps that were skipped, and a bar that is drawn for a line keeps the old one."""
    lines, rate = [drawing("", 0, 4000, 0, "?it/s")], 305.0
    for step in range(1627, 3001):
        if step < 1660 and step % 3 == 0:
            rate = max(rate * 0.6, 1 / 4.5)
        elif step >= 1660:
            rate = 1 / 4.5
        lines.append(drawing("", step, 4000, 5 + 4.5 * (step - 1627), f"{rate:.2f}it/s" if rate > 1 else "4.50s/it"))
    run = the_run("\n".join(["***** Running training *****", *lines]))
    assert run.iterations.time_s[1:].min() > 0.9 * 4.5
    took_s = run.iterations.time_s[1:] * np.diff(run.iterations.number)
    assert float(took_s.sum()) == pytest.approx(4.5 * 1373, rel=0.01)


def test_bars_of_evaluations_tell_of_them_where_their_results_went_elsewhere() -> None:
    log = TrainerLog(eval_every=50)
    bars = [line for line in log.lines() if not line.startswith("{")]
    run = the_run("\n".join(["***** Running training *****", "  Total optimization steps = 400", *bars]) + "\n")
    assert [event.at for event in run.evaluations][:7] == list(range(50, 351, 50))
    assert [event.took_s for event in run.evaluations][:7] == pytest.approx([12.5] * 7, rel=0.15)
    analysis = analyse(run)
    assert analysis.goodput.wall_s == pytest.approx(sum(log.times.values()) + 7 * 12.5, rel=0.01)
    assert analysis.goodput.parts_s["stall"] == 0
    other = [line for line in TrainerLog(eval_every=50, seed=2).lines() if not line.startswith("{")]
    between = [drawing("", i, 38, i, "1.00s/it") for i in (2, 38)]  # before the second training has begun
    both = read(from_text("\n".join(["***** Running training *****", *bars, *between, *other])))
    assert [len(part.evaluations) for part in both] == [7, 7]
