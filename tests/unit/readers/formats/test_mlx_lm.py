"""MLX-LM: lines of three ages, and the table that took their place."""

from __future__ import annotations

import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.readers import detect, read
from stepwatch.readers.formats.mlx_lm import READER
from stepwatch.run import Run
from stepwatch.sources import from_text

HEAD = "Loading pretrained model\nTrainable parameters: 0.042% (3.408M/8030.261M)\nStarting training..., iters: 400\n"
OLD = "Iter {n}: Train loss 1.431, It/sec {r:.3f}, Tokens/sec 124.415\n"
MIDDLE = OLD.replace(", It", ", Learning Rate 1.000e-05, It").replace("\n", ", Trained Tokens {t}\n")
NEW = MIDDLE.replace("\n", ", Peak mem 14.605 GB\n")


def lines(shape: str = NEW, last: int = 400, first: int = 10) -> str:
    text = "Iter 1: Val loss 2.420, Val took 32.200s\n" if first == 10 else ""
    for number in range(first, last + 1, 10):
        if number % 200 == 0:
            text += f"Iter {number}: Val loss 1.130, Val took 30.000s\n"
        text += shape.format(n=number, r=0.5 if number > 10 else 0.25, t=1000 * number)
        if number % 100 == 0:
            text += f"Iter {number}: Saved adapter weights to a/adapters.safetensors and a/{number:07d}_adapters.saf…\n"
    return text


TABLE = """\
  iter   train_loss     tok/s     tokens
     1    val 2.722    22.83s
    10    2.944 ▼    1,000     10.0k
    20    2.666 ▼    1,250     20.0k
    30    2.713 ▲    1,250     30.0k
    40    val 2.262    16.76s
    40    2.281 ▼    1,250     40.0k
  save  0000040_adapters.safetensors
    50    2.134 ▼    1,250     50.0k
"""


def the_run(text: str) -> Run:
    (run,) = read(from_text(text))
    return run


@pytest.mark.parametrize("shape", [NEW, MIDDLE, OLD])
def test_lines_of_every_age_are_read(shape: str) -> None:
    run = the_run(HEAD + lines(shape))
    assert run.format == "mlx-lm"
    assert run.iterations.number.tolist() == list(range(10, 401, 10))
    assert run.iterations.time_s[:2].tolist() == [4.0, 2.0]
    assert run.iterations.reported_tokens_per_s[3] == 124.415
    assert [(e.at, e.val_loss, e.took_s) for e in run.evaluations] == [
        (1, 2.42, 32.2),
        (200, 1.13, 30),
        (400, 1.13, 30),
    ]
    assert [save.at for save in run.checkpoints] == [100, 200, 300, 400]
    assert run.settings.count("max_iters") == 400
    assert "n_params" not in run.settings  # only adapters are trained
    assert run.unread_count == 0


def test_a_model_that_is_trained_whole_tells_its_size() -> None:
    text = "Trainable parameters: 100.000% (134.515M/134.515M)\n" + lines()
    assert the_run(text).settings.number("n_params") == pytest.approx(134.515e6)


def test_evaluations_every_200_after_one_at_1_are_so_forecast() -> None:
    analysis = analyse(the_run(lines(last=390)))
    assert analysis.phases.eval_interval == 200
    assert analysis.costs.how["eval_s"] == "measured"


def test_the_last_line_stands_for_fewer_steps_and_is_mended() -> None:
    run = the_run(lines() + OLD.format(n=404, r=1.25, t=0))
    assert run.iterations.time_s[-1] == pytest.approx(2.0)  # printed 10 / 8 s for four steps


def test_a_gap_in_an_excerpt_is_not_mended() -> None:
    run = the_run(lines(last=200) + lines(first=590, last=600))
    assert run.iterations.time_s[-1] == 2.0


def test_the_table_is_read() -> None:
    run = the_run(TABLE)
    assert run.format == "mlx-lm"
    assert run.iterations.number.tolist() == [10, 20, 30, 40, 50]
    assert run.iterations.time_s.tolist() == pytest.approx([1.0, 0.8, 0.8, 0.8, 0.8])
    assert run.iterations.loss[2] == 2.713
    assert [(e.at, e.val_loss, e.took_s) for e in run.evaluations] == [(1, 2.722, 22.83), (40, 2.262, 16.76)]
    assert [save.at for save in run.checkpoints] == [40]


def test_the_table_in_colours_and_its_box_are_read() -> None:
    box = "│    batch · iters   4 · 1,200                │\n"
    coloured = box + TABLE.replace("2.713 ▲", "\x1b[1;33m2.713 ▲\x1b[0m")
    run = the_run(coloured)
    assert len(run.iterations) == 5
    assert (run.settings.count("max_iters"), run.settings.count("batch_size")) == (1200, 4)


def test_tokens_too_coarse_to_divide_give_the_mean_so_far() -> None:
    run = the_run("   100    0.944 ▼       10      0.8k\n   200    0.666 ▼       10      1.6k\n")
    assert run.iterations.time_s.tolist() == pytest.approx([0.8, 0.8])


@pytest.mark.parametrize("cut", range(0, len(TABLE), 37))
def test_a_table_cut_anywhere_is_read_as_far_as_it_goes(cut: int) -> None:
    text = "Iter 5: Train loss 1.4, It/sec 0.5, Tokens/sec 1\n" + TABLE[:cut] + "\n   9    1.2.3 ▼    1..2    ..k\n"
    assert len(read(from_text(text))[0].iterations) >= 1


def test_two_runs_are_two() -> None:
    text = HEAD + lines() + HEAD + lines(last=90).replace("It/sec 0.", "It/sec 1.")
    assert [len(run.iterations) for run in read(from_text(text))] == [40, 9]


def test_a_near_miss_is_shown() -> None:
    run = the_run(lines() + "Iter 401: Train loss 1.431, It/sec fast, Tokens/sec 12\n")
    assert run.unread_count == 1


def test_the_example_is_read() -> None:
    assert detect(from_text(example_of(READER.name))) == "mlx-lm"
    run = the_run(example_of(READER.name))
    assert (len(run.iterations), len(run.evaluations), len(run.checkpoints)) == (1, 1, 1)
