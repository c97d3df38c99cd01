"""verl: steps with their parts, testing and saving taken out."""

from __future__ import annotations

import numpy as np
import pytest

from stepwatch.analysis import analyse
from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.run import Run, Timing
from stepwatch.sources import from_text

_PARTS = {"gen": 4.0, "reward": 0.25, "old_log_prob": 0.75, "adv": 0.0, "update_actor": 5.0}


def _line(
    step: int, *, testing: float | None = None, saving: float | None = None, inside: bool = True, value: str = "{:.3f}"
) -> str:
    whole = sum(_PARTS.values()) + (saving or 0.0) + (testing or 0.0 if inside else 0.0)
    parts = dict(_PARTS)
    parts |= {"testing": testing} if testing is not None else {}
    parts |= {"save_checkpoint": saving} if saving is not None else {}
    timings = " - ".join(f"timing_s/{name}:{value.format(took)}" for name, took in (parts | {"step": whole}).items())
    return (
        f"step:{step} - actor/entropy_loss:0.035 - actor/pg_loss:-0.0197 - training/global_step:{step} - "
        f"timing_s/agent_loop/generate_sequences/max:{value.format(50)} - timing_s/start_profile:0.0003 - {timings} - "
        f"timing_per_token_ms/gen:0.126 - perf/total_num_tokens:60000 - perf/time_per_step:{whole:.3f} - "
        f"perf/throughput:{60000 / whole / 8:.4f}"
    )


def _one(lines: list[str]) -> Run:
    (run,) = read(from_text("\n".join(lines) + "\n"))
    assert run.format == "verl"
    return run


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("value", ["{:.3f}", "np.float64({})"])
def test_testing_and_saving_are_no_part_of_the_step(inside: bool, value: str) -> None:
    lines = ["(TaskRunner pid=1464) Total training steps: 60"]
    for step in range(1, 31):
        every = step % 10 == 0
        lines.append(
            "(TaskRunner pid=1464) "
            + _line(step, testing=6.0 if every else None, saving=19.0 if every else None, inside=inside, value=value)
        )
    run = _one(lines)
    assert run.timing is Timing.SPANS_STEP
    assert np.allclose(run.iterations.time_s, 10.0)
    assert [(each.at, each.took_s) for each in run.evaluations] == [(10, 6.0), (20, 6.0), (30, 6.0)]
    assert [(each.at, each.took_s) for each in run.checkpoints] == [(10, 19.0), (20, 19.0), (30, 19.0)]
    assert run.settings.count("max_iters") == 60
    assert run.settings.count("world_size") == 8
    assert np.allclose(run.iterations.loss, -0.0197)


def test_the_parts_add_up_to_the_step() -> None:
    run = _one([_line(step) for step in range(1, 31)])
    assert np.allclose(sum(run.parts.values()), run.iterations.time_s)
    said = next(finding for finding in analyse(run).findings if finding.code == "step_parts")
    parts = [part.params["name"] for part in said.message.params["parts"]]
    assert parts == ["update_actor", "gen", "old_log_prob", "reward"]


def test_lines_that_stand_twice_count_once() -> None:
    run = _one([line for step in range(1, 31) for line in 2 * [_line(step, testing=6.0)]])
    assert len(run.iterations) == 30 == len(run.evaluations)


def test_a_resumed_run_has_the_length_of_its_bar() -> None:
    lines = [
        "Setting global step to 100",
        "Training Progress:  23%|\u2588\u2588\u258e       | 100/435 [00:00<?, ?it/s]",
    ]
    run = _one([*lines, *(_line(step) for step in range(101, 131))])
    assert run.resumed
    assert run.settings.count("max_iters") == 435
    assert int(run.iterations.number[0]) == 101


def test_a_validation_before_the_first_step_is_an_evaluation() -> None:
    run = _one(["step:0 - val-core/gsm8k/reward/mean@1:0.25", *(_line(step) for step in range(1, 20))])
    assert [each.at for each in run.evaluations] == [0]


def test_very_long_lines_are_read_whole() -> None:
    more = " - ".join(f"val-aux/set_{place}/reward/mean@32:0.5" for place in range(300))
    run = _one([_line(step).replace("actor/entropy_loss", more + " - actor/entropy_loss") for step in range(1, 8)])
    assert np.allclose(run.iterations.time_s, 10.0)


def test_generation_alone_is_no_training() -> None:
    with pytest.raises(NoIterations):
        read(from_text("step:0 - val-core/gsm8k/reward/mean@1:0.25\n" * 5))


@pytest.mark.parametrize("tokens", ["1" + "0" * 400, "nan", "1" + "0" * 300, "-1"])
@pytest.mark.parametrize("per_s", ["1" + "0" * 400, "nan", "0." + "0" * 322 + "1", "0"])
def test_rates_that_cannot_be_say_nothing_of_the_cards(tokens: str, per_s: str) -> None:
    lines = [_line(step).replace("tokens:60000", f"tokens:{tokens}") for step in range(1, 20)]
    run = _one([f"{line.rpartition(':')[0]}:{per_s}" for line in lines])
    assert "world_size" not in run.settings
    assert len(run.iterations) == 19
