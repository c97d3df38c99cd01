"""YOLO's console: bars of epochs and of validations, as tqdm draws them and as Ultralytics does; its printed total."""

from __future__ import annotations

import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import detect, read
from stepwatch.run import Run
from stepwatch.sources import from_text
from stepwatch.verdict import Status, judge

BATCHES, VALIDATED = 60, 8
CLASSES = "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95)"
OLD_CLASSES = "               Class     Images     Labels          P          R     mAP@.5 mAP@.5:.95"


def clock(seconds: float) -> str:
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60:02}:{rest % 60:02}"


def bar(form: str, done: int, total: int, each: float) -> str:
    rate = f"{each:.2f}s/it" if each >= 1 else f"{1 / each:.2f}it/s"
    share, elapsed = 100 * done // total, done * each
    if form == "own":
        shown = clock(elapsed).removeprefix("0") if elapsed >= 60 else f"{elapsed:.1f}s"
        left = "" if done == total else f"<{clock((total - done) * each)}"
        return f"{share}% {'━' * 12} {done}/{total} {rate.replace('0it', 'it')} {shown}{left}"
    drawing = "|" + "█" * 10 + "|" if form == "tqdm" else ""
    return f"{share:3d}%{drawing} {done}/{total} [{clock(elapsed)}<{clock((total - done) * each)},  {rate}]"


def log(
    epochs: int, *, form: str = "tqdm", each: float = 0.5, planned: int = 30, first: int = 1, drawings: int = 1
) -> str:
    """Epochs of 60 batches, each with a validation of 8 batches that takes half as long a batch."""
    old = form == "bare"
    lines = [f"Starting training for {planned} epochs...", ""]
    for epoch in range(first, first + epochs):
        lines.append("     Epoch   gpu_mem       box       obj       cls    labels  img_size")
        for place in range(1, drawings + 1):
            done = BATCHES * place // drawings
            begin = f"{epoch - old}/{planned - old}      5.8G     1.179     0.944     1.012        19       640"
            lines.append(f"       {begin}: {bar(form, done, BATCHES, each)}")
        lines.append(f"{OLD_CLASSES if old else CLASSES}: {bar(form, VALIDATED, VALIDATED, each / 2)}")
        lines.append("                   all       1008       1930      0.676      0.583      0.641      0.377")
    return "\n".join(lines) + "\n"


def the_run(text: str) -> Run:
    source = from_text(text)
    assert detect(source) == "ultralytics"
    (run,) = read(source)
    return run


@pytest.mark.parametrize("form", ["tqdm", "bare", "own"])
@pytest.mark.parametrize("each", [0.05, 0.5, 2.5, 90.0])
def test_epochs(form: str, each: float) -> None:
    run = the_run(log(10, form=form, each=each))
    assert run.iterations.number.tolist() == [BATCHES * epoch for epoch in range(1, 11)]
    assert run.iterations.time_s == pytest.approx(each, rel=0.02)
    assert run.iterations.loss[0] == 1.179
    assert run.settings.count("max_iters") == 30 * BATCHES
    assert [event.at for event in run.evaluations] == [BATCHES * epoch for epoch in range(1, 11)]
    analysis = analyse(run)
    assert analysis.goodput.iterations == 10 * BATCHES
    assert analysis.goodput.wall_s == pytest.approx(10 * BATCHES * each + 9.5 * VALIDATED * each / 2, rel=0.03)


@pytest.mark.parametrize("form", ["tqdm", "own"])
def test_drawings_within_an_epoch(form: str) -> None:
    run = the_run(log(4, form=form, each=2.5, drawings=20))
    assert run.iterations.number[-1] == 4 * BATCHES
    assert len(run.evaluations) == 4
    assert analyse(run).costs.step_s.mid == pytest.approx(2.5, rel=0.02)


def test_the_printed_total_has_what_lies_between_the_bars() -> None:
    text = log(10, planned=10) + "10 epochs completed in 0.105 hours.\n"
    text += f"Validating runs/best.pt...\n{CLASSES}: {bar('tqdm', VALIDATED, VALIDATED, 0.25)}\n"
    run = the_run(text)
    assert len(run.evaluations) == 11
    analysis = analyse(run)
    assert analysis.goodput.wall_s == pytest.approx(378)
    assert analysis.goodput.parts_s["unexplained"] == pytest.approx(378 - 300 - 18, abs=4)
    assert analysis.forecast.done


def test_the_total_of_epochs_that_are_not_there_is_not_taken() -> None:
    text = "\n".join(log(10, planned=10).splitlines()[20:]) + "\n10 epochs completed in 0.105 hours.\n"
    run = the_run(text)
    assert run.reported_s is None
    assert analyse(run).goodput.wall_s < 250


def test_stopped_early_is_an_end() -> None:
    assert analyse(the_run(log(10, planned=300) + "10 epochs completed in 0.105 hours.\n")).forecast.done


@pytest.mark.parametrize(("told", "patience"), [("20", 20 * BATCHES), ("0", None)])
def test_patience_in_iterations(told: str, patience: int | None) -> None:
    settings = f"engine/trainer: agnostic_nms=False, batch=32, epochs=30, patience={told}, perspective=0.0\n"
    assert the_run(settings + log(5)).patience == patience


def test_an_overwritten_last_drawing() -> None:
    lines = [line for line in log(3, drawings=20).splitlines() if f"{BATCHES}/{BATCHES} [" not in line]
    run = the_run("\n".join(lines))
    assert run.iterations.number[-1] == 3 * BATCHES
    assert len(run.evaluations) == 3


def test_a_process_that_begins_again_is_a_run_of_its_own() -> None:
    first, second = read(from_text(log(5) + log(4, each=0.7)))
    assert (len(first.iterations), len(second.iterations)) == (5, 4)
    assert second.iterations.time_s == pytest.approx(0.7, rel=0.02)


@pytest.mark.parametrize(
    "line",
    [
        "train: Scanning labels.cache... 1381 images, 0 corrupt: 100% ━━━━━━━━━━━━ 1381/1381 29.4it/s 0.9s",
        "train: Caching images (0.4GB ram): 100%|██████████| 1381/1381 [00:03<00:00, 455.30it/s]",
        "100% 40.8M/40.8M [00:00<00:00, 143MB/s]",
        f"{CLASSES}: {bar('tqdm', VALIDATED, VALIDATED, 0.25)}",
        f"{CLASSES}: {bar('own', VALIDATED, VALIDATED, 0.25)}",
        "Epoch 2:  40%|████      | 40/100 [00:08<00:12,  4.91it/s, v_num=0, train_loss=2.310]",
    ],
)
def test_bars_of_loading_and_validation_are_no_training(line: str) -> None:
    assert detect(from_text(f"{line}\n" * 5)) != "ultralytics"


def test_a_run_that_has_not_begun_is_refused() -> None:
    scanning = "train: Scanning labels.cache... 1381 images: 100% ━━━━━━━━━━━━ 1381/1381 29.4it/s 0.9s\n"
    with pytest.raises(NoIterations):
        analyse(the_run(scanning + "Starting training for 30 epochs...\n"))


def test_lines_without_a_time_are_not_named() -> None:
    layer = "  0                -1  1      5280  models.common.Conv     [3, 48, 6, 2, 2]\n"
    assert the_run(layer + log(3)).unread_count == 0


def test_bars_that_were_cut_before_their_time_are_no_run_that_only_begun() -> None:
    text = "Starting training for 30 epochs...\n     Epoch   gpu_mem       box       obj       cls\n"
    text += "".join(
        f"     {n}/29      7.1G    0.1121    0.0302   0.01044        31       640: 100%|█|\n" for n in range(2)
    )
    with pytest.raises(NoIterations, match="have no time"):
        read(from_text(text))


@pytest.mark.parametrize("hidden_s", [0.0, 0.35, 1.45])
def test_a_forecast_allows_for_what_passes_between_the_bars(hidden_s: float) -> None:
    each, planned = 0.05, 100
    forecast = analyse(the_run(log(20, form="own", each=each, planned=planned))).forecast
    assert forecast.total_s is not None
    shown = planned * (BATCHES + VALIDATED / 2) * each
    assert forecast.total_s.holds(shown + planned * hidden_s)
    assert forecast.total_s.mid == pytest.approx(shown + planned * 0.55, rel=0.02)
    assert not forecast.total_s.holds(shown + planned * 2.0)
    assert "hidden" in forecast.reasons


def two_speeds(then: float, closing: int | None) -> str:
    """60 epochs, the last ten at another speed; before one of them stands the line that announces it."""
    text = "Starting training for 60 epochs...\n"
    for epoch in range(1, 61):
        text += "Closing dataloader mosaic\n" if epoch == closing else ""
        each = (0.5 if epoch <= 50 else then) + 0.005 * (epoch % 4)
        text += "\n".join(log(1, each=each, planned=60, first=epoch).splitlines()[2:]) + "\n"
    return text


@pytest.mark.parametrize("then", [0.4, 0.7])
def test_a_change_of_speed_that_the_log_announces_is_intended(then: float) -> None:
    announced, silent = (analyse(the_run(two_speeds(then, closing))) for closing in (51, None))
    assert "regime_change" in {finding.code for finding in silent.findings}
    assert "schedule" not in {finding.code for finding in silent.findings}
    assert "regime_change" not in {finding.code for finding in announced.findings}
    verdict = judge(announced)
    assert "That is intended" in verdict.text.key
    assert verdict.text.params["at"] == 51 * BATCHES
    assert verdict.text.params["quote"] == "Closing dataloader mosaic"


def test_a_line_elsewhere_announces_no_change_of_speed() -> None:
    assert judge(analyse(the_run(two_speeds(0.7, 20)))).status is Status.SLOWING


def test_a_limit_of_hours_is_the_end() -> None:
    text = log(3).replace("Starting training for 30 epochs...", "Starting training for 0.5 hours...")
    assert the_run(text).limit_s == 1800
    assert the_run(log(3)).limit_s is None


@pytest.mark.parametrize("shown", [": 1", ": 100", ": 100%", ": 100%|███"])
@pytest.mark.parametrize(("epochs", "end"), [(1, "1 epochs completed in 0.120 hours.\n"), (3, "")])
def test_bars_cut_at_the_width_are_no_training_that_is_yet_to_begin(shown: str, epochs: int, end: str) -> None:
    lines = [line.split(": 100%")[0] + shown if ": 100%" in line else line for line in log(epochs).splitlines()]
    with pytest.raises(NoIterations, match="have no time: “1/30") as refused:
        read(from_text("\n".join(lines) + "\n" + end))
    assert refused.value.remedy is not None
    assert "cut at the width" in refused.value.remedy.in_english()


def test_an_epoch_that_has_just_begun_is_waited_for() -> None:
    assert not len(the_run(log(0)).iterations)


def test_the_first_drawing_of_a_later_bar_is_no_slow_iteration() -> None:
    """Four batches in the second that the loader needs to start: the clock of the bar has no digits for it."""
    lines = log(6, drawings=6, each=1.0).splitlines()
    at = next(place for place, line in enumerate(lines) if line.lstrip().startswith("4/30"))
    early = lines[at].split(": ")[0] + ":   7%|█         | 4/60 [00:09<02:00,  2.37s/it]"
    run = the_run("\n".join([*lines[:at], early, *lines[at:]]) + "\n")
    assert run.iterations.time_s[run.iterations.number > BATCHES].max() < 1.2
    assert judge(analyse(run)).status is Status.HEALTHY
