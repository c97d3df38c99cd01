"""`stepwatch estimate` as it is called."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.builders import Truth, a_log

from stepwatch.cli import main
from stepwatch.i18n import LANGUAGES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["estimate", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_config_is_read_and_overridden_as_train_py_would(tmp_path: Path) -> None:
    config = tmp_path / "train_small.py"
    config.write_text(
        "batch_size = 16\ngradient_accumulation_steps = 4 * 8\nmax_iters = 6000\n"
        "n_layer = 6\nn_head = 6\nn_embd = 384\n"
    )
    found = answer(str(config), "--gpu", "4070", "--batch_size=8", "--set", "eval_interval=500")
    assert found["settings"]["batch_size"] == 8
    assert found["settings"]["gradient_accumulation_steps"] == 32
    assert found["origins"] | {"batch_size": "user", "max_iters": "config", "eval_iters": "default"} == found["origins"]
    assert found["tokens_per_iter"] == 8 * 32 * 1024


def test_a_config_that_does_more_than_assign_is_never_executed_and_told(tmp_path: Path) -> None:
    trap = tmp_path / "touched"
    config = tmp_path / "evil.py"
    config.write_text(
        f"import os\nopen({str(trap)!r}, 'w')\nbatch_size = int('8')\nn_layer = 12\nfor i in []:\n    pass\n"
    )
    found = answer(str(config), "--gpu", "4090")
    assert not trap.exists()
    assert "batch_size" in found["remarks"][0]
    assert found["settings"]["batch_size"] == 12


@pytest.mark.parametrize("up", [".", "config"])
def test_a_dataset_that_is_there_tells_its_vocabulary(tmp_path: Path, up: str) -> None:
    data, config = tmp_path / "data" / "mine", tmp_path / up / "train_mine.py"
    data.mkdir(parents=True)
    config.parent.mkdir(exist_ok=True)
    config.write_text("dataset = 'mine'\n")
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 91, "itos": {0: "a"}}))
    assert answer(str(config), "--gpu", "4070")["settings"]["vocab_size"] == 91
    assert answer(str(config), "--gpu", "4070", "--vocab_size=50")["settings"]["vocab_size"] == 50
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": Path}))  # would import something
    assert answer(str(config), "--gpu", "4070")["settings"]["vocab_size"] == 50304


def test_a_log_gives_the_settings_too(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(a_log(Truth()))
    found = answer(str(log), "--gpu", "a100")
    assert found["settings"]["n_layer"] == Truth().shape.n_layer
    assert found["origins"]["n_layer"] == "log"


def test_an_impossible_claim_is_answered_with_exit_code_3() -> None:
    done = run(
        "--gpu", "4070", "--set", "n_params=40e6", "--set", "tokens_per_iter=524288", "--claim", "100ms", "--json"
    )
    assert done.exit_code == 3
    claim = json.loads(done.stdout)["claim"]
    assert claim["verdict"] == "impossible"
    assert claim["needs_tflops"] == pytest.approx(1258, rel=0.001)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--gpu", "4077"), 1), (("--gpu", "cpu"), 1), (("--gpu", "4070", "--claim", "soon"), 2),
        (("--gpu", "4070", "--batchsize=8"), 2), (("--gpu", "4070", "--n_embd=100"), 2),
        (("no-such.py", "--gpu", "4070"), 1), (("--gpu", "4070", "--gpus", "0"), 2),
        (("a.py", "b.py", "--gpu", "4070"), 2), (("--gpu", "4070", "--link", "string"), 2),
        (("--gpu", "4070", "--max_iters=-5"), 2),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line_and_what_to_do(arguments: tuple[str, ...], code: int) -> None:
    done = run(*arguments)
    assert done.exit_code == code
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 2


@pytest.mark.parametrize("form", ["terminal", "md", "json"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_form_in_every_language(form: str, language: str) -> None:
    done = run("--gpu", "4070", "--format", form, "--lang", language, "--why", "--claim", "10s")
    assert done.exit_code == 0
    assert form == "json" or "{" not in done.stdout


def test_models_by_name_and_by_depth() -> None:
    assert answer("--gpu", "h100", "--model", "gpt2-xl")["n_params"] == pytest.approx(1.557e9, rel=0.01)
    assert answer("--gpu", "4090", "--depth", "12")["settings"]["n_layer"] == 12


def test_a_run_that_has_only_begun_is_forecast_by_the_estimator_and_then_by_the_log(tmp_path: Path) -> None:
    """Header alone, iteration 0, then 1, 3 and 10 more lines: one forecast that narrows, each overlapping the last."""
    header = tmp_path / "header.log"
    header.write_text(a_log(Truth(max_iters=6000)).partition("step 0")[0])
    expected = answer(str(header), "--gpu", "t4", "--compile=True", "--dtype=float16")
    truth = Truth(
        step_s=1.1 * expected["step_s"]["mid"], eval_s=expected["eval_s"]["mid"], checkpoint_s=0.3, max_iters=6000,
        noise=0.005, log_interval=10,
    )  # fmt: skip
    lines = a_log(truth).splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if line.startswith("step 0"))
    before: dict[str, float] | None = None
    widths = []
    for more in (0, 2, 3, 5, 12):
        log = tmp_path / f"{more}.log"
        log.write_text("".join(lines[: start + more]))
        done = CliRunner().invoke(main, [str(log), "--gpu", "t4", "--json"])
        assert done.exit_code == 0, done.stderr
        forecast = json.loads(done.stdout)["runs"][0]["forecast"]
        total = forecast["total_s"]
        assert forecast["basis"] == ("estimate" if more <= 2 else "both")
        if before is not None:
            assert total["low"] <= before["high"]
            assert before["low"] <= total["high"]
        before = total
        widths.append(total["high"] / total["low"])
    assert widths[-1] < widths[2] < widths[0]


def test_a_log_that_contradicts_the_estimator_wins_at_once(tmp_path: Path) -> None:
    lines = a_log(Truth(step_s=2.0, eval_s=40.0, max_iters=6000, noise=0.005, log_interval=10)).splitlines(
        keepends=True
    )
    start = next(i for i, line in enumerate(lines) if line.startswith("step 0"))
    log = tmp_path / "slow.log"
    log.write_text("".join(lines[: start + 4]))
    done = CliRunner().invoke(main, [str(log), "--gpu", "4090", "--json"])
    total = json.loads(done.stdout)["runs"][0]["forecast"]["total_s"]
    assert total["low"] < 6001 * 2.0 + 25 * 40 < total["high"] * 1.1


def test_what_the_name_of_the_card_says_counts() -> None:
    assert answer("--gpu", "8xa100")["n_gpus"] == 8
    assert answer("--gpu", "2x4090", "--gpus", "3")["n_gpus"] == 3
    assert answer("--gpu", "4090")["n_gpus"] == 1


def test_nothing_private_is_shown_by_why(tmp_path: Path) -> None:
    config = tmp_path / "private.py"
    config.write_text("out_dir = '/home/somebody/out'\nwandb_project = 'secret'\n")
    for form in ("terminal", "md"):
        done = run(str(config), "--gpu", "4070", "--why", "--format", form)
        assert "somebody" not in done.stdout
        assert "secret" not in done.stdout


@pytest.mark.parametrize("text", ["n_layer = = 3", "(" * 5000, "x = " + "9" * 100_000, "if x:\ny = 1", "#" * 2_000_000])
def test_a_config_that_is_no_python_is_refused_in_two_lines(tmp_path: Path, text: str) -> None:
    config = tmp_path / "broken.py"
    config.write_text(text)
    done = run(str(config), "--gpu", "4070")
    assert done.exit_code == 1
    assert len(done.stderr.strip().splitlines()) == 2


def test_a_config_that_changes_a_setting_in_a_way_that_is_not_followed_loses_it(tmp_path: Path) -> None:
    config = tmp_path / "train.py"
    config.write_text(
        "n_embd = 384\nn_embd += 384\nmax_iters = 1000\nif True:\n    max_iters = 5\n"
        "batch_size, block_size = 4, 512\nbatchsize = 3\n"
    )
    found = answer(str(config), "--gpu", "4070")
    assert found["settings"]["n_embd"] == 768
    assert found["origins"]["max_iters"] == "default"
    assert (found["settings"]["batch_size"], found["settings"]["block_size"]) == (4, 512)
    assert "max_iters" in found["remarks"][0]
    assert "batch_size?" in found["remarks"][0]
