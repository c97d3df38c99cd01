"""Parts of the trainer that need no training: settings, learning rate, ETA, and its lines as the reader sees them."""

from __future__ import annotations

import math

import pytest

from stepwatch import from_text, read
from stepwatch.analysis import analyse
from stepwatch.errors import InputError, UsageError
from stepwatch.run import Timing
from stepwatch.trainer.config import NAMES, TrainConfig, config_from_file, config_from_flags, train_config
from stepwatch.trainer.eta import Pace, said

OWN_LOG = """\
stepwatch 0.1.0 trains; times are of the step alone; on NVIDIA GeForce RTX 4070 (cuda, bfloat16); mfu of its 58.3 TFLOPS
max_iters = 600
seed = 1337
tokens per iteration will be: 8,192
number of parameters: 10.65M
compiling the model... (takes a ~minute)
compilation: 31204.00ms
step 0: train loss 4.2874, val loss 4.2823
evaluation at 0: 5512.30ms
iter 0: loss 4.2654, time 151.20ms, mfu -100.00%
eta 1min 30s (1min 10s to 2min 5s) at iter 0
iter 1: loss 4.2600, time 150.20ms, mfu -100.00%
step 2: train loss 4.1, val loss 4.2
evaluation at 2: 5400.00ms
saving checkpoint to out
checkpoint at 2: waited 12.30ms
iter 2: loss 4.2500, time 149.20ms, mfu -100.00%
checkpoint at 2: written in 2130.00ms
iter 3: loss 4.2400, time 150.00ms, mfu -100.00%
saving checkpoint to out
checkpoint at 4: waited 14.30ms
stopped by SIGINT after iteration 3
checkpoint at 4: not written (no room); the one before is kept
"""


# --- settings ---------------------------------------------------------------------------------------------------


def test_flags_go_over_the_file_and_the_file_over_the_defaults() -> None:
    told, left_out = config_from_file("batch_size = 4 * 2\nn_layer = 3\nlearning_rate = 1\n")
    config = train_config(told, config_from_flags(["--n_layer=5", "--compile=false", "--out_dir='a b'"]))
    assert (config.batch_size, config.n_layer, config.n_head) == (8, 5, 12)
    assert (config.learning_rate, config.compile, config.out_dir) == (1.0, False, "a b")
    assert left_out == ()


@pytest.mark.parametrize("text", ["batch_size = open('x')", "for i in range(3):\n    batch_size = i", "n_layer = 'a'"])
def test_a_setting_that_would_have_to_be_executed_is_an_error(text: str) -> None:
    with pytest.raises(InputError):
        config_from_file(text)


@pytest.mark.parametrize("name", ["batchsize", "evalinterval", "n_layers", "warm_up_iters"])
def test_a_name_that_nothing_knows_has_neighbours(name: str) -> None:
    for attempt in (lambda: config_from_flags([f"--{name}=1"]), lambda: config_from_file(f"{name} = 1")):
        with pytest.raises(UsageError) as raised:
            attempt()
        assert raised.value.remedy is not None
        assert any(known in raised.value.remedy.in_english() for known in NAMES)


@pytest.mark.parametrize(
    "values",
    [{"n_embd": 10, "n_head": 3}, {"dropout": 1.0}, {"beta2": 1.0}, {"learning_rate": math.inf}, {"eval_iters": 0},
     {"eval_splits": "test"}, {"init_from": "gpt5"}, {"max_iters": -1}, {"dtype": "int8"}],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        TrainConfig(**values)  # type: ignore[arg-type]


# --- when it ends -----------------------------------------------------------------------------------------------


def test_the_eta_counts_steps_evaluations_and_checkpoints() -> None:
    pace = Pace()
    assert pace.eta(10, 0, 0) is None
    for _ in range(100):
        pace.step(0.5)
    pace.evaluations.append(10.0)
    pace.checkpoints.append(1.0)
    assert pace.eta(0, 0, 0) is None
    told = pace.eta(100, 2, 3)
    assert told is not None
    middle, low, high = told
    assert middle == pytest.approx(100 * 0.5 + 2 * 10 + 3 * 1)
    assert low < middle < high < 1.1 * middle


def test_an_uneven_run_has_a_wider_eta() -> None:
    even, uneven = Pace(), Pace()
    for number in range(200):
        even.step(1.0)
        uneven.step(1.0 + (number // 10 % 2))
    assert even.eta(100, 0, 0)[2] < uneven.eta(100, 0, 0)[2] / 1.2  # type: ignore[index]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0s"), (59.6, "1min 0s"), (7800, "2h 10min"), (90000, "1d 1h"), (200, "3min 20s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert said(seconds) == text


# --- its lines, read again --------------------------------------------------------------------------------------


def test_the_reader_knows_the_trainers_own_lines() -> None:
    (run,) = read(from_text(OWN_LOG))
    assert (run.format, run.timing, run.holds) == ("nanogpt", Timing.SPANS_STEP, frozenset())
    assert [(event.at, event.took_s) for event in run.evaluations] == [(0, 5.5123), (2, 5.4)]
    assert [(event.at, event.took_s) for event in run.checkpoints] == [(2, 0.0123), (4, 0.0143)]
    assert run.compile_s == 31.204
    assert run.mfu_peak_flops == pytest.approx(58.3e12)
    assert run.gpu_text is not None
    assert [fault.kind for fault in run.faults] == ["interrupted"]
    assert not run.unread


def test_what_the_trainer_timed_is_measured() -> None:
    (run,) = read(from_text(OWN_LOG))
    costs = analyse(run).costs
    assert costs.how["eval_s"] == costs.how["checkpoint_s"] == "measured"
    assert costs.compile_s is not None
    assert costs.compile_s.mid == pytest.approx(31.2, abs=0.1)


def test_a_mean_over_the_log_interval_is_read_as_one() -> None:
    (run,) = read(from_text(OWN_LOG.replace("step alone;", "step alone, the mean since the line before;")))
    assert run.timing == Timing.SPANS_LOG_INTERVAL


# --- learning rate and model ------------------------------------------------------------------------------------


def test_the_learning_rate_rises_falls_and_stays() -> None:
    pytest.importorskip("torch", reason="torch is not installed: the trainer is not tested")
    from stepwatch.trainer.optimizer import learning_rate

    config = TrainConfig(learning_rate=1.0, min_lr=0.1, warmup_iters=9, lr_decay_iters=109)
    rates = [learning_rate(number, config) for number in (0, 8, 9, 59, 109, 110, 5000)]
    assert rates == pytest.approx([0.1, 0.9, 1.0, 0.55, 0.1, 0.1, 0.1])
    assert learning_rate(9, TrainConfig(warmup_iters=9, lr_decay_iters=9, min_lr=0.0)) > 0


def test_the_model_has_nanogpts_names_and_count() -> None:
    pytest.importorskip("torch", reason="torch is not installed: the trainer is not tested")
    from stepwatch.trainer.model import GPT, GPTConfig

    model = GPT(GPTConfig(n_layer=1, n_head=2, n_embd=8, block_size=4, bias=True, vocab_size=10))
    block = [f"transformer.h.0.{name}.{kind}" for name in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj") for kind in ("weight", "bias")]  # fmt: skip  # noqa: E501
    ends = ["transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"]
    assert list(model.state_dict()) == ["transformer.wte.weight", "transformer.wpe.weight", *block, *ends]
    assert model.n_params() == sum(parameter.numel() for parameter in model.parameters()) - 4 * 8
    model.crop_block_size(3)
    assert model.transformer["wpe"].weight.shape == (3, 8)


# --- the machine ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "load", "says"),
    [(4, 0.4, None), (4, 2.1, "OMP_NUM_THREADS=2"), (4, 9.0, "OMP_NUM_THREADS=1"), (1, 9.0, None), (4, None, None)],
)
def test_threads_that_have_no_processor_are_told(
    monkeypatch: pytest.MonkeyPatch, threads: int, load: float | None, says: str | None
) -> None:
    pytest.importorskip("torch", reason="torch is not installed: the trainer is not tested")
    from stepwatch.trainer import hardware

    monkeypatch.setattr(hardware, "load_average", lambda: load)
    monkeypatch.setattr(hardware, "allowed_processors", lambda: 4)
    told = hardware.crowded(threads)
    assert told is None if says is None else says in str(told)
