"""Rewrites the generated parts of the READMEs and docs/: `python -m tools.pages`.

Between markers are help texts, real answers and the core of examples; the READMEs state the number of formats;
docs/formats.md and docs/recommended.md are generated as a whole.
"""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

from click.testing import CliRunner

from stepwatch import cli, samples
from stepwatch.fleet.schema import TABLES
from stepwatch.i18n import LANGUAGES
from stepwatch.readers.formats import FORMATS
from tools import ROOT, formats_page, recommended_page

_COMMANDS = (
    "explain estimate advice watch run monitor serve compare collect fleet gpus record train sample convert prepare "
    "calibrate"
)
READMES = tuple(sorted(path.name for path in ROOT.glob("README*.md")))  # README.zh.md is the Chinese version
PAGES = (*READMES, "docs/index.md", *(f"docs/{name}.md" for name in _COMMANDS.split()))
_BLOCK = re.compile(
    r"<!-- (?P<kind>help|output|example|columns|store):(?P<name>[\w-]+) -->\n(?P<body>.*?)<!-- /(?P=kind) -->",
    re.DOTALL,
)
_COUNTED = re.compile(r"(?<=\[)([^\]\d]*)\d+(?=[^\]\d]*\]\(docs/formats\.md\))")
_SHOWN = re.compile(r"^# shown in docs/[\w-]+\.md:\n(?P<code>.*?)^# so far$", re.DOTALL | re.MULTILINE)
_FOR_LINTERS = re.compile(r"  # (?:noqa|fmt): .*$", re.MULTILINE)
COLUMNS = {"machine": samples.MACHINE, "card": {f"gpu0_{name}": meaning for name, meaning in samples.CARD.items()}}
OUTPUTS = {
    "short": "examples/short.log --gpu 4070",
    "resumed": "examples/resumed.log --gpu 4070",
    "laptop-sleep": "examples/laptop-sleep.log",
    "4070": "gpus 4070",
    "estimate": "estimate examples/train_gpt2_small.py --gpu 4070",
    "claim": "estimate --gpu 4070 --set n_params=40e6 --set tokens_per_iter=524288 --claim 100ms",
    "advise": "advise examples/train_gpt2_small.py --gpu 4070 --compile=False",
    "advise-log": "advise examples/nanogpt-4070.log --gpu 4070 --set max_iters=20000",
    "recommended": "advise --gpu 4070 --n_layer=8 --n_head=8 --n_embd=512 --tokens_per_iter=524288",
}


class Block(NamedTuple):
    """One generated part: where it is, what generates it, and its current text."""

    page: str
    kind: str
    name: str
    body: str

    @property
    def arguments(self) -> tuple[str, ...]:
        if self.kind == "output":
            language = self.page.split(".")[1]
            spoken = ("--lang", language) if language in LANGUAGES else ()
            return (*OUTPUTS[self.name].split(), *spoken)
        return ("--help",) if self.name == "stepwatch" else (self.name, "--help")


def page_path(page: str) -> Path:
    return ROOT / page


def blocks() -> list[Block]:
    return [
        Block(page, found["kind"], found["name"], found["body"])
        for page in PAGES
        for found in _BLOCK.finditer(page_path(page).read_text(encoding="utf-8"))
    ]


def fresh_body(block: Block) -> str:
    """The current body: a command as one would type it with its output, or the core of an example."""
    if block.kind == "example":
        return f"```python\n{core_of_example(block.name)}```\n"
    if block.kind == "columns":
        rows = (f"| `{name}` | {meaning} |\n" for name, meaning in COLUMNS[block.name].items())
        return "| column | holds |\n|---|---|\n" + "".join(rows)
    if block.kind == "store":
        rows = (
            f"| `{column.name}` | {column.kind} | {column.unit} | {column.about} |" for column in TABLES[block.name]
        )
        return "\n".join(("| column | kind | unit | what it is |", "|---|---|---|---|", *rows)) + "\n"
    if block.kind == "help":
        return f"```text\n{answer(*block.arguments)}```\n"
    return f"```console\n$ stepwatch {' '.join(block.arguments)}\n{answer(*block.arguments)}```\n"


def answer(*arguments: str) -> str:
    """What stepwatch prints on a plain terminal of 80 columns, in English unless the arguments say otherwise."""
    plain = {"COLUMNS": "80", "LINES": "50", "NO_COLOR": "1", "TERM": "dumb", "LANGUAGE": "en", "LC_ALL": "C.UTF-8"}
    with chdir(ROOT):
        done = CliRunner().invoke(cli.main, arguments, prog_name="stepwatch", env=plain, terminal_width=78)
    if done.exit_code not in (0, 3):  # 3: answered, and the answer is no
        raise RuntimeError(f"stepwatch {' '.join(arguments)}: exit code {done.exit_code}\n{done.stderr[-800:]}")
    return "\n".join(line.rstrip() for line in done.stdout.rstrip("\n").split("\n")) + "\n"


def core_of_example(name: str) -> str:
    """The lines of an example that its page shows; a test runs all of it."""
    found = _SHOWN.search((ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8"))
    if found is None:
        raise RuntimeError(f"examples/{name}.py does not mark what a page shows of it")
    return _FOR_LINTERS.sub("", found["code"])


def rewritten(page: str) -> str:
    """The page with every generated part renewed."""
    text = page_path(page).read_text(encoding="utf-8")

    def renew(found: re.Match[str]) -> str:
        block = Block(page, found["kind"], found["name"], found["body"])
        return f"<!-- {block.kind}:{block.name} -->\n{fresh_body(block)}<!-- /{block.kind} -->"

    return counted(_BLOCK.sub(renew, text))


def counted(text: str) -> str:
    """The text with the number of formats other than nanoGPT's in the link to their page."""
    return _COUNTED.sub(rf"\g<1>{len(FORMATS) - 1}", text)


def main() -> None:
    texts = {page: rewritten(page) for page in PAGES}
    texts |= {formats_page.PAGE: formats_page.page(), recommended_page.PAGE: recommended_page.page()}
    for page, text in texts.items():
        if not page_path(page).exists() or text != page_path(page).read_text(encoding="utf-8"):
            page_path(page).write_text(text, encoding="utf-8")
            print(f"wrote {page}")


if __name__ == "__main__":
    main()
