"""build-nanogpt: its versions, its evaluations, and the side file that tells no times."""

from __future__ import annotations

import pytest
from tools.formats_page import example_of

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.readers.formats.build_nanogpt import FORMAT
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text

HEADER = """\
total desired batch size: 524288
=> calculated gradient accumulation steps: 2
num decayed parameter tensors: 50, with 124,354,560 parameters
num non-decayed parameter tensors: 98, with 121,344 parameters
"""
LINE = "step {n:5d} | loss: 6.158106 | lr 2.1063e-04 | norm: 0.9477 | dt: {ms:.2f}ms | tok/sec: 25754.51\n"
EVALUATION = """\
validation loss: 6.1702
HellaSwag accuracy: 2497/10042=0.2487
rank 0 sample 0: Hello, I'm a language model, and the validation
of it all took 3 ms
rank 3 sample 0: Hello, I'm a language model
"""


def the_run(text: str) -> Run:
    (run,) = read(from_text(text))
    return run


def a_log(steps: int) -> str:
    return HEADER + "".join(
        (EVALUATION if n % 50 == 0 else "") + LINE.format(n=n, ms=20400 if n % 50 == 0 else 416.5) for n in range(steps)
    )


@pytest.mark.parametrize(
    "line",
    [
        LINE, "step {n:4d} | loss: 6.158106 | norm: 0.9477 | dt: {ms:.2f}ms | tok/sec: 25754.51\n",
        "step {n:4d} | loss: 6.158106 | dt: {ms:.2f}ms | tok/sec: 25754.51\n",
        "step {n}, loss: 6.158106327056885, dt: {ms:.2f}ms, tok/sec: 25754.51\n",
        LINE.replace("lr 2", "lr: 2"), LINE.replace("6.158106", "nan"), "[rank0]: " + LINE,
    ],
)  # fmt: skip
def test_every_version_of_the_line_is_read(line: str) -> None:
    run = the_run("".join(line.format(n=n, ms=416.25) for n in range(4)))
    assert run.format == "build-nanogpt"
    assert run.timing is Timing.SPANS_ITERATION
    assert run.iterations.number.tolist() == [0, 1, 2, 3]
    assert run.iterations.time_s.round(6).tolist() == [0.41625] * 4
    assert run.iterations.reported_tokens_per_s.tolist() == [25754.51] * 4
    assert run.unread_count == 0


def test_header_and_samples_tell_the_settings() -> None:
    run = the_run(a_log(60))
    assert run.settings.number("n_params") == 124354560 + 121344
    assert run.settings.count("tokens_per_iter") == 524288
    assert run.settings.count("gradient_accumulation_steps") == 2
    assert run.settings.count("world_size") == 4


def test_evaluations_are_in_the_time_of_the_step_that_follows() -> None:
    run = the_run(a_log(220))
    assert [e.at for e in run.evaluations] == [0, 50, 100, 150, 200]
    analysis = analyse(run)
    assert analysis.costs.eval_s is not None
    assert analysis.costs.eval_s.mid == pytest.approx(19.98, rel=0.02)
    assert "stall" not in {finding.code for finding in analysis.findings}


def test_a_log_that_ends_in_an_evaluation_does_not_blame_the_last_step() -> None:
    run = the_run(a_log(100) + EVALUATION)
    assert [e.at for e in run.evaluations] == [0, 50, 100]
    assert analyse(run).phases.trailing == 100


def test_two_runs_in_a_file_are_two() -> None:
    assert [len(run.iterations) for run in read(from_text(a_log(70) + a_log(60).replace("20400", "20500")))] == [70, 60]


def test_the_side_file_gets_a_clear_answer() -> None:
    with pytest.raises(NoIterations) as caught:
        read(from_text("0 val 10.9522\n0 hella 0.2487\n0 train 10.955010\n1 train 10.902707\n"))
    assert caught.value.what.params["name"] == "build-nanogpt"


def test_cut_lines_are_named() -> None:
    run = the_run(a_log(10) + "step    10 | loss: 6.15 | lr 2.1e-04 | norm: 0.9 | dt: 41")
    assert len(run.iterations) == 10
    assert run.unread_count == 1


def test_its_example_is_read() -> None:
    run = the_run(example_of(FORMAT.name))
    assert len(run.iterations) == 2
    assert [e.at for e in run.evaluations] == [250]
