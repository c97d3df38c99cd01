"""Which machine and versions a log is from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepwatch.fleet.identity import identity_of


def told(text: str, tmp_path: Path, name: str = "/logs/a/train.log", file: str = "train.log") -> dict[str, str | None]:
    path = tmp_path / file
    path.write_text(text)
    return {key: value for key, value in identity_of([str(path)], name).items() if value is not None}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("SLURMD_NODENAME=gpu-a-17", {"node": "gpu-a-17"}),
        ("[2024-05-04] INFO Host: node07.cluster", {"node": "node07.cluster"}),
        ("hostname: dgx3", {"node": "dgx3"}),
        ("CUDA_VISIBLE_DEVICES=2,3", {"gpu_index": "2,3"}),
        ("PyTorch version: 2.4.1+cu121", {"torch_version": "2.4.1+cu121"}),
        ("torch==2.6.0", {"torch_version": "2.6.0"}),
        ("| NVIDIA-SMI 535.1  Driver Version: 535.129.03  CUDA Version: 12.2 |",
         {"driver_version": "535.129.03", "cuda_version": "12.2"}),
        ("git commit: 1a2b3c4d5e", {"code_version": "1a2b3c4d5e"}),
        ("device=cuda:0, rank on localhost, host=localhost", {}),
        ("iter 0: loss 4.2, time 100ms", {}),
    ],
)  # fmt: skip
def test_what_a_line_says(line: str, expected: dict[str, str], tmp_path: Path) -> None:
    assert told(f"a header\n{line}\niter 0: loss 4.2\n", tmp_path) == expected


def test_a_path_says_it_where_the_log_does_not(tmp_path: Path) -> None:
    assert told("", tmp_path, "/runs/project=atlas/node=n3/x.log") == {"project": "atlas", "node": "n3"}
    assert told("", tmp_path, "s3://bucket/node-17/x.log") == {"node": "node-17"}
    assert told("", tmp_path, "/home/nodejs/x.log") == {}


def test_files_beside_a_log_say_it(tmp_path: Path) -> None:
    environment = {"versions": {"torch": "2.5.0", "python": "3.11.7"}, "card": {"driver": "550.1"}, "commit": "abc"}
    assert told(json.dumps(environment), tmp_path, file="environment.json") == {
        "torch_version": "2.5.0", "python_version": "3.11.7", "driver_version": "550.1", "code_version": "abc",
    }  # fmt: skip
    assert told(json.dumps({"host": "n1"}), tmp_path, file="wandb-metadata.json") == {"node": "n1"}
    assert told('{"stepwatch":1,"torch":"2.6.0","driver":"550"}\n{"step":', tmp_path)["torch_version"] == "2.6.0"
