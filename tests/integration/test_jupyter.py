"""A real kernel runs a notebook: the report is in its outputs, without a script."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tests.builders import Truth, a_log


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own parts
def test_a_kernel_shows_the_report_of_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "train.log").write_text(a_log(Truth(max_iters=400, step_s=0.2)))
    cells = [
        "import stepwatch\nstepwatch.explain('train.log', gpu='4070', language='es')",
        "%load_ext stepwatch",
        "%%stepwatch --gpu 4070 --lang de\n!cat train.log",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    first, _, last = (cell.outputs for cell in notebook.cells)
    spanish = first[-1]["data"]["text/html"]
    assert '<article class="report" lang="es"' in spanish
    assert "<script" not in spanish
    assert "iter 0:" in last[0]["text"]  # shown as ever
    assert '<article class="report" lang="de"' in last[-1]["data"]["text/html"]
