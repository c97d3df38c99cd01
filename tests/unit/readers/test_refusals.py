from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwatch.readers.refusals import config_given
from stepwatch.sources import from_text

PYTHON = "# a comment\nout_dir = 'out'\nbatch_size = 8\nblock_size = 4 * 256\ncompile = False\n"
JSON = '{"model": {"num_hidden_layers": 12, "n_head": 12}, "batch_size": 8, "fp16": true}'
TOML = "[model]\nname = 'x'\n[training]\nbatch_size = 8\nseq_length = 2048\n"
YAML = """# axolotl
---
base_model: gpt2   # a comment
datasets:
  - path: x
    type: "alpaca"
micro_batch_size: 4
'max_steps': 1000
compile: true
"""


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (PYTHON, {"batch_size": 8, "block_size": 1024, "compile": False}),
        (JSON, {"n_layer": 12, "n_head": 12, "batch_size": 8, "dtype": "float16"}),
        (TOML, {"batch_size": 8, "block_size": 2048}),
        (YAML, {"batch_size": 4, "max_iters": 1000, "compile": True}),
    ],
)
def test_a_config_is_known_by_what_it_sets(text: str, settings: dict[str, object]) -> None:
    found = config_given(from_text(text))
    assert found is not None
    assert found.settings == settings


@pytest.mark.parametrize(
    "text",
    [
        "", "hello\n", "{}", "[1, 2]", '{"loss": 3}', "import torch\nprint(1)\n", "batch_size: 8\nepoch 3 took 5 s\n",
        "batch_size = 8\nstep 3 | 5 s\n", "x" * 300_000,
    ],
)  # fmt: skip
def test_other_texts_are_no_configs(text: str) -> None:
    assert config_given(from_text(text)) is None


def test_a_name_is_enough_where_nothing_in_it_is_known() -> None:
    found = config_given(from_text("model: llama\n", "odd.yaml"))
    assert found is not None
    assert "for example: stepwatch estimate --n_layer" in found.estimate().in_english()


def test_a_python_config_is_named_and_others_are_written_out() -> None:
    found = config_given(from_text("batch_size = 8\n"))
    assert found is not None
    assert (
        found.estimate("--gpu 4070", path="my cfg.py")
        .in_english()
        .endswith(': stepwatch estimate "my cfg.py" --gpu 4070')
    )
    assert (
        found.estimate("--gpu 4070", path="x.txt")
        .in_english()
        .endswith(": stepwatch estimate --batch_size=8 --gpu 4070")
    )


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    config_given(from_text(text))


@pytest.mark.parametrize(
    ("text", "known"),
    [("a" + ".b" * 400 + " = 1\n", False), ("[a]\n" + "b.c = {d" + ".e" * 490 + " = 1}\n", False),
     ("a.b" * 50_000 + " = 1\n", False), ("a = " * 60_000 + "1\n", False),
     (f"batch_size = 8\nnames = '{'x' * 900}'\n", True), (f"batch_size = 8\nnames = '{'x' * 1000}'\n", False)],
    ids=["deep", "deeper", "dots", "equals", "long line", "too long"],
)  # fmt: skip
def test_keys_of_any_depth_and_length_cost_no_time_and_never_raise(text: str, known: bool) -> None:
    began = time.process_time()
    assert (config_given(from_text(text)) is not None) is known
    assert time.process_time() - began < 0.5
