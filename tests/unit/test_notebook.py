"""In a notebook: reports that show themselves, and the magic around a training cell, in a real IPython."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import HTML, DisplayHandle
from IPython.utils.capture import capture_output
from tests.builders import Truth, a_log
from traitlets.config import Config

import stepwatch
from stepwatch.notebook import ShownReport

LOG = a_log(Truth(max_iters=400, step_s=0.2))
TABLE = """<div><progress value='{done}' max='40'></progress>[{done}/40 00:{seconds}, Epoch 1/1]</div>
<table border="1"><thead><tr><th>Step</th><th>Training Loss</th></tr></thead><tbody>{rows}</tbody></table>"""


@pytest.fixture(scope="module")
def one_shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
        shell.run_line_magic("load_ext", "stepwatch")
        yield shell
        InteractiveShell.clear_instance()


@pytest.fixture
def shell(one_shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    monkeypatch.setenv("LANGUAGE", "en")
    monkeypatch.chdir(tmp_path)
    one_shell.user_ns["log"] = LOG
    return one_shell


def test_a_report_shows_itself_without_a_script(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(LOG)
    html = stepwatch.explain(path, language="de")._repr_html_()
    assert "Eine normale Iteration dauert" in html
    assert "<script" not in html
    assert "<svg" in html
    assert "@scope (.stepwatch)" in html  # its style ends with it
    assert ":root" not in html


def test_without_vl_convert_the_tables_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    path = tmp_path / "train.log"
    path.write_text(LOG)
    html = stepwatch.explain(path, language="en")._repr_html_()
    assert "<details open>" in html


def test_the_output_of_a_cell_is_shown_and_explained(shell: InteractiveShell) -> None:
    with capture_output() as shown:
        report = shell.run_cell_magic("stepwatch", "--gpu 4070 --lang fr", "print(log)")
    assert "iter 0:" in shown.stdout
    assert isinstance(report, ShownReport)
    assert report.language == "fr"
    (analysis,) = report.analyses
    assert analysis.costs.step_s.mid == pytest.approx(0.2, rel=0.02)
    assert analysis.throughput.gpu is not None


def test_settings_complete_what_a_cell_prints(shell: InteractiveShell) -> None:
    with capture_output():
        report = shell.run_cell_magic("stepwatch", "--set max_iters=9000", "print(log)")
    assert report.analyses[0].run.settings["max_iters"].value == 9000


def test_the_output_of_a_command_counts(shell: InteractiveShell, tmp_path: Path) -> None:
    """As a notebook's own shell runs it: by lines through sys.stdout."""
    (tmp_path / "train.log").write_text(LOG)
    shell.system = shell.system_piped
    with capture_output():
        report = shell.run_cell_magic("stepwatch", "", "!cat train.log")
    assert report.analyses[0].costs.step_s.mid == pytest.approx(0.2, rel=0.02)


def test_a_display_that_is_updated_is_one_output(shell: InteractiveShell) -> None:
    def cell() -> None:
        handle = DisplayHandle()
        for done in range(1, 41):
            rows = "".join(f"<tr><td>{step}</td><td>2.{step:06}</td></tr>" for step in range(10, done + 1, 10))
            page = HTML(TABLE.format(done=done, seconds=f"{done:02}", rows=rows))
            (handle.display if done == 1 else handle.update)(page)

    shell.user_ns["train"] = cell
    with capture_output():
        report = shell.run_cell_magic("stepwatch", "", "train()")
    (analysis,) = report.analyses
    assert analysis.run.format == "hf-notebook"
    assert analysis.goodput.wall_s == pytest.approx(40, rel=0.05)


@pytest.mark.parametrize(
    ("line", "cell", "said"),
    [
        ("", "print('hello')", "no"),
        ("--gpus 4070", "print(log)", "--gpu"),
        ("--gpu nonsense", "print(log)", "nonsense"),
        ("--lang xx", "print(log)", "xx"),
    ],
)
def test_what_cannot_be_answered_is_said_in_two_lines(shell: InteractiveShell, line: str, cell: str, said: str) -> None:
    with capture_output() as shown:
        assert shell.run_cell_magic("stepwatch", line, cell) is None
    assert said in shown.stderr
    assert "Traceback" not in shown.stderr
    assert len(shown.stderr.splitlines()) <= 2


def test_a_cell_that_fails_is_explained_up_to_there(shell: InteractiveShell) -> None:
    with capture_output() as shown:
        report = shell.run_cell_magic("stepwatch", "", "print(log)\nraise RuntimeError('CUDA out of memory')")
    assert "CUDA out of memory" in shown.stdout + shown.stderr
    assert report.runs[0].verdict.status == "crashed"


def test_a_report_is_markdown_where_html_cannot_be_shown(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(LOG)
    assert stepwatch.explain(path, language="en")._repr_markdown_().startswith("#")
