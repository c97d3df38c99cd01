"""`stepwatch advise` as it is called."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.builders import Truth, a_log

from stepwatch.cli import main
from stepwatch.i18n import LANGUAGES

LONG = Truth(max_iters=20000)
KEYS = {"rule", "change", "patch", "saves_s", "basis", "price", "text"}


def run(*arguments: str, command: str = "advise", data: str | None = None) -> Result:
    return CliRunner().invoke(main, [command, *arguments], input=data)


def answer(*arguments: str, command: str = "advise", data: str | None = None) -> dict[str, Any]:
    done = run(*arguments, "--json", command=command, data=data)
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def rules_of(found: dict[str, Any]) -> list[str]:
    return [advice["rule"] for advice in found["advice"]]


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "train.log"
    path.write_text(a_log(LONG))
    return str(path)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "train_small.py"
    path.write_text(
        "n_layer = 12\nn_head = 12\nn_embd = 768\nbatch_size = 8\ngradient_accumulation_steps = 64\n"
        "max_iters = 12000\neval_interval = 50\ncompile = False\n"
    )
    return str(path)


# --- a log, a config, neither -----------------------------------------------------------------------------------


def test_of_a_log_what_it_measured_is_used(log: str) -> None:
    found = answer(log)
    assert found["schema"] == "stepwatch.advice/1"
    assert rules_of(found)[0] == "evaluate_less"
    assert found["advice"][0]["basis"] == "measured"
    assert found["advice"][0]["change"] == {"eval_interval": [250, 2000]}
    assert all(set(advice) >= KEYS for advice in found["advice"])
    assert found["recommended"] is None
    assert found["plan"] is None
    assert found["after"]["total_s"]["mid"] < found["before"]["total_s"]["mid"]
    assert found["command"] == "python train.py --eval_interval=2000"


def test_of_a_config_the_estimator_is_asked(config: str) -> None:
    found = answer(config, "--gpu", "4070")
    assert {"compile", "evaluate_less"} <= set(rules_of(found))
    assert {advice["basis"] for advice in found["advice"]} == {"modelled"}
    assert found["before"]["vram_bytes"] is not None
    assert "train_small.py" in found["command"]
    assert str(Path(config).parent) not in found["command"]


def test_with_neither_a_whole_config_is_recommended() -> None:
    found = answer("--gpu", "4070", "--set", "n_layer=6", "--n_head=6", "--n_embd=384", "--max_iters=5000")
    assert found["advice"] == []
    assert found["recommended"]["n_layer"] == 6
    assert found["recommended"]["max_iters"] == 5000
    assert found["plan"]["schema"] == "stepwatch.plan/1"
    assert found["plan"]["fits"] is True
    assert found["after"]["total_s"]["mid"] <= found["before"]["total_s"]["mid"]


def test_a_model_may_be_named_and_the_tokens_wanted(tmp_path: Path) -> None:
    found = answer("--gpu", "4090", "--model", "gpt2-medium", "--set", "tokens_per_iter=524288")
    plan = found["plan"]
    assert plan["tokens_per_iter"] == 524288
    assert found["recommended"]["n_layer"] == 24


def test_a_log_and_its_config_together(log: str, config: str) -> None:
    found = answer(log, "--config", config, "--gpu", "4070")
    assert "evaluate_less" in rules_of(found)
    assert "train_small.py" in found["command"]


def test_a_setting_given_by_hand_counts(log: str) -> None:
    fewer = {advice["rule"]: advice["change"] for advice in answer(log, "--set", "eval_iters=100")["advice"]}
    assert fewer["fewer_eval_batches"] == {"eval_iters": [100, 25]}
    assert {advice["rule"] for advice in answer(log, "--eval_iters=20")["advice"]}.isdisjoint({"fewer_eval_batches"})


def test_the_same_call_gives_the_same_bytes(log: str) -> None:
    for form in ("--json", "--md", "--format=terminal"):
        assert run(log, "--gpu", "4070", form).stdout_bytes == run(log, "--gpu", "4070", form).stdout_bytes


def test_a_pipe_is_read(log: str) -> None:
    assert answer("-", data=a_log(LONG))["advice"] == answer(log)["advice"]


def test_the_command_itself_reads_a_pipe_and_writes_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "stepwatch", "advise", "-", "--json"], input=a_log(LONG).encode(),
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr == b""
    assert json.loads(done.stdout)["advice"]


def test_a_file_is_written_where_it_is_asked_for(log: str, tmp_path: Path) -> None:
    target = tmp_path / "advice.md"
    done = run(log, "--md", "-o", str(target))
    assert done.exit_code == 0
    assert done.stdout == ""
    assert target.read_text(encoding="utf-8").startswith("# ")


# --- several runs, short ones, headers --------------------------------------------------------------------------


def test_of_several_runs_one_may_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "two.log"
    path.write_text(a_log(LONG) + a_log(Truth(max_iters=9000, seed=3, eval_interval=100)))
    assert answer(str(path), "--run", "1")["advice"][0]["change"] == {"eval_interval": [250, 2000]}
    assert answer(str(path), "--run", "2")["advice"][0]["change"]["eval_interval"][0] == 100
    both = answer(str(path))
    assert both["advice"] == answer(str(path), "--run", "1")["advice"]  # the longest
    assert both["remarks"]
    assert run(str(path), "--run", "3").exit_code == 2


def test_a_log_of_half_a_minute_gets_no_advice(tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    path.write_text(a_log(Truth(max_iters=200, eval_interval=20, step_s=0.05, eval_s=1.0, compile_s=3.0)))
    assert answer(str(path), "--gpu", "4090")["advice"] == []
    assert "Nothing is worth changing" in run(str(path), "--gpu", "4090").stdout


def test_a_log_with_only_a_header_is_advised_on_as_its_config_would_be(tmp_path: Path) -> None:
    path = tmp_path / "header.log"
    path.write_text(a_log(LONG).partition("step 0")[0])
    found = answer(str(path), "--gpu", "t4", "--max_iters=100000")
    assert found["before"] is not None
    assert found["recommended"] is None
    expected = answer(str(path), "--gpu", "t4", "--max_iters=100000", command="estimate")
    assert rules_of(found) == rules_of(expected)
    assert rules_of(found)


def test_a_log_with_only_a_header_and_no_card_asks_for_the_card(tmp_path: Path) -> None:
    path = tmp_path / "header.log"
    path.write_text(a_log(LONG).partition("step 0")[0])
    done = run(str(path))
    assert done.exit_code == 1
    assert len(done.stderr.strip().splitlines()) == 2
    assert "--gpu" in done.stderr
    assert "this machine" not in done.stderr  # a log may come from another one: the driver is not asked


def test_a_log_without_a_card_says_what_is_missing(log: str) -> None:
    assert any("--gpu" in text for text in answer(log)["missing"])
    assert "--gpu" in run(log).stdout
    assert not any("--gpu" in text for text in answer(log, "--gpu", "4070")["missing"])


# --- one list everywhere ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--gpu", "4070"), ("--gpu", "4070", "--lang", "de")])
def test_explain_gives_the_same_list(log: str, options: tuple[str, ...]) -> None:
    explained = answer(log, "--no-iterations", *options, command="explain")["runs"][0]["advice"]
    assert explained == answer(log, *options)["advice"]
    assert explained


def test_explain_counts_the_cards_that_are_named_as_advise_does(tmp_path: Path) -> None:
    path = tmp_path / "quick.log"
    path.write_text(a_log(Truth(max_iters=20000, step_s=0.02, eval_s=2.8, gradient_accumulation=2)))
    advised = answer(str(path), "--gpu", "2x4090")
    assert "more_cards" in rules_of(advised)
    explained = answer(str(path), "--no-iterations", "--gpu", "2x4090", command="explain")["runs"][0]
    assert rules_of(explained) == rules_of(advised)


def test_estimate_gives_the_same_list(config: str) -> None:
    estimated = answer(config, "--gpu", "4070", command="estimate")["advice"]
    assert estimated == answer(config, "--gpu", "4070")["advice"]
    assert all(set(advice) >= KEYS for advice in estimated)


# --- every language ---------------------------------------------------------------------------------------------

ENGLISH = ("Raise ", "Lower ", "Saves ", "Price", "Before", "After", "Whole run", "Name the card", "command line")
ENGLISH_CONFIG = ("For ", "iteration and takes", "it pays back", "Twenty tokens", "An evaluation and", "command line")


@pytest.mark.parametrize("form", ["terminal", "md"])
@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_no_english_is_left_in_another_language(log: str, config: str, form: str, language: str) -> None:
    english = run(log, "--format", form, "--lang", "en").stdout
    other = run(log, "--format", form, "--lang", language).stdout
    for phrase in ENGLISH:
        assert phrase in english or form == "md", phrase
        assert phrase not in other
    assert "Find out" not in run(log, "--gpu", "4090", "--format", form, "--lang", language).stdout
    assert "Set compile" not in run(config, "--gpu", "4070", "--format", form, "--lang", language).stdout


@pytest.mark.parametrize("language", LANGUAGES[1:])
def test_no_english_is_left_in_recommended_settings(language: str) -> None:
    english, other = (run("--gpu", "4070", "--lang", one).stdout for one in ("en", language))
    for phrase in ENGLISH_CONFIG:
        assert phrase in " ".join(english.split()), phrase
        assert phrase not in " ".join(other.split())


@pytest.mark.parametrize("language", LANGUAGES)
def test_markdown_shows_the_list_the_table_and_the_diff(log: str, language: str) -> None:
    note = run(log, "--md", "--lang", language).stdout
    assert note.startswith("# ")
    assert "## 1. " in note
    assert "```diff\n- eval_interval = 250\n+ eval_interval = 2000\n```" in note
    assert note.count("```") % 2 == 0


# --- bad input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("nowhere.log",), 1), (("nowhere.py", "--gpu", "4070"), 1), (("--gpu", "4077"), 1), (("--gpu", "cpu"), 1),
        (("LOG", "--gpu", "4077"), 1), (("--gpu", "4070", "--model", "gpt2-xl"), 1),
        (("--gpu", "4070", "--n_embd=100"), 2), (("LOG", "--set", "eval_iters=-4"), 2),
        (("LOG", "--set", "eval_iterz=4"), 2), (("LOG", "--set", "eval_iters"), 2),
        (("LOG", "--batchsize=4"), 2), (("--gpu", "4070", "--set", "mtbf_hours=0"), 2), (("LOG", "--run", "0"), 2),
        (("--gpu", "4070", "--gpus", "0"), 2), (("--gpu", "4070", "--link", "string"), 2),
        (("--gpu", "4070", "--set", "tokens_per_iter=1000"), 2), (("LOG", "--config", "nowhere.py"), 1),
    ],
)  # fmt: skip
def test_bad_input_gets_one_line_and_what_to_do(log: str, arguments: tuple[str, ...], code: int) -> None:
    done = run(*(log if argument == "LOG" else argument for argument in arguments))
    assert done.exit_code == code
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 2
    assert "Traceback" not in done.stderr


def test_a_config_of_a_model_that_never_fits_is_told_so(tmp_path: Path) -> None:
    """GPT-2 XL needs 32 GB with a single sequence: "nothing is worth changing" is no answer to that."""
    path = tmp_path / "xl.py"
    path.write_text("n_layer = 48\nn_head = 25\nn_embd = 1600\n")
    done = run(str(path), "--gpu", "4070")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 2


def test_more_than_one_file_is_refused_not_passed_over(log: str, config: str) -> None:
    for files in ((log, log), (log, config), (config, config), (config, log)):
        done = run(*files, "--gpu", "4070")
        assert done.exit_code == 2, files
        assert len(done.stderr.strip().splitlines()) == 2


@pytest.mark.parametrize("data", ["", "hello\n", "iter 0: loss 4.0\n", "{}"])
def test_a_pipe_without_a_run_is_refused(data: str) -> None:
    done = run("-", data=data)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 2


def test_nothing_private_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "private.py"
    path.write_text("out_dir = '/home/somebody/out'\nwandb_project = 'secret'\ndataset = 'hidden'\neval_interval = 9\n")
    for form in ("terminal", "md", "json"):
        shown = run(str(path), "--gpu", "4090", "--format", form).stdout
        assert shown
        assert not any(word in shown for word in ("somebody", "secret", "hidden", str(tmp_path)))


def test_recommended_settings_keep_what_is_private_out_of_the_plan() -> None:
    found = answer("--gpu", "4090", "--set", "wandb_project=secret")
    assert "secret" not in str(found["plan"])
