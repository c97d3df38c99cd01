"""Own runs as a prior: collected, then asked for."""

from __future__ import annotations

import json
from pathlib import Path

from tests.builders import Shape, Truth, a_log
from tests.commands import stepwatch

MODEL = ("--n_layer=6", "--n_head=6", "--n_embd=384", "--block_size=256", "--vocab_size=65", "--batch_size=64")
OPTIONS = (*MODEL, "--gradient_accumulation_steps=1", "--gpu", "4070", "--json")


def test_own_runs_narrow_an_estimate(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for seed in range(4):
        log = a_log(Truth(seed=seed, max_iters=300, step_s=0.2, shape=Shape(), compile_s=5.0))
        (tmp_path / "logs" / f"{seed}.log").write_text(log)
    store = tmp_path / "store"
    options = ("--gpu", "4070", "--workers", "1")
    assert stepwatch("collect", tmp_path / "logs", "--into", store, *options).returncode == 0
    before = json.loads(stepwatch("estimate", *OPTIONS).stdout)
    done = stepwatch("estimate", *OPTIONS, "--history", store)
    assert done.returncode == 0, done.stderr
    after = json.loads(done.stdout)
    assert (before["own_runs"], after["own_runs"]) == (0, 4)
    assert after["step_s"]["low"] <= 0.2 <= after["step_s"]["high"]
    assert abs(after["step_s"]["mid"] - 0.2) < abs(before["step_s"]["mid"] - 0.2)
    assert after["step_s"]["high"] / after["step_s"]["low"] < before["step_s"]["high"] / before["step_s"]["low"]
    assert any("own runs" in remark for remark in after["remarks"])
    explained = json.loads(stepwatch(tmp_path / "logs" / "0.log", "--gpu", "4070", "--json", "--history", store).stdout)
    assert "own_runs" in [finding["code"] for finding in explained["runs"][0]["findings"]]
    assert stepwatch("advise", tmp_path / "logs" / "0.log", "--gpu", "4070", "--history", store).returncode == 0
    wrong = stepwatch("estimate", *OPTIONS, "--history", tmp_path / "nothing")
    assert (wrong.returncode, len(wrong.stderr.splitlines())) == (1, 2)
