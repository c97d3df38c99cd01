"""Help and wrong usage, in every language."""

from __future__ import annotations

import re

import click
import pytest
from tests.commands import stepwatch

from stepwatch.cli import COMMANDS, Option, main
from stepwatch.i18n import LANGUAGES, say
from stepwatch.presenters.screen import cell_width

TRANSLATED = [language for language in LANGUAGES if language != "en"]
PAGES = [(), *((name,) for name in COMMANDS)]
ENGLISH = re.compile(r"\b(?:the|and|with|from|this|options?:|usage|show|default|required)\b", re.IGNORECASE)


def commands() -> dict[str, click.Command]:
    context = click.Context(main)
    return {name: command for name in COMMANDS if (command := main.get_command(context, name)) is not None}


def helped(*arguments: str, **environment: str) -> str:
    done = stepwatch(*arguments, "--help", COLUMNS="80", **environment)
    assert done.returncode == 0
    return done.stdout.decode()


def test_every_option_that_is_shown_has_a_meaning() -> None:
    for name, command in commands().items():
        shown = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
        assert all(isinstance(option, Option) for option in shown), name


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_line_of_the_help_is_wider_than_the_terminal(language: str) -> None:
    for page in PAGES:
        for line in helped(*page, "--lang", language).splitlines():
            assert cell_width(line) <= 80, line


@pytest.mark.parametrize("language", TRANSLATED)
def test_no_english_is_left_in_the_help(language: str) -> None:
    asked = re.compile(r"`[^`]*`|\"[^\"]*\"|\[[a-z0-9|]+\]|--[\w-]+|[\w/.-]+[./_][\w/.-]*|\b[A-Z]+\b")  # as typed
    for page in PAGES:
        text = asked.sub("", helped(*page, "--lang", language).replace("--gpu this", ""))
        left = {found.lower() for found in ENGLISH.findall(text)}
        assert left - ({"options", "options:"} if language == "fr" else set()) == set(), page


@pytest.mark.parametrize("language", ["zh", "ja"])
def test_the_second_column_begins_at_one_place(language: str) -> None:
    text = helped("explain", "--lang", language)
    command = commands()["explain"]
    begins = {
        cell_width(line[: line.index(words)])
        for option in command.params
        if isinstance(option, Option)
        for words in (say(option.meaning, language)[:6],)
        for line in text.splitlines()
        if line.lstrip().startswith(option.opts[0]) and words in line
    }
    assert len(begins) == 1


def test_the_language_is_that_of_the_environment_or_of_the_option_anywhere() -> None:
    chinese = helped(LANG="zh_CN.UTF-8")
    assert chinese.startswith("用法：stepwatch [选项] 命令 [参数]...")
    assert helped(LANG="zh_TW.UTF-8") == chinese  # simplified: there is no other
    for asked in (["--help", "--lang", "zh"], ["--lang", "zh", "--help"], ["--lang=zh", "help"], ["help", "--lang=zh"]):
        assert stepwatch(*asked, COLUMNS="80").stdout.decode() == chinese, asked
    german = stepwatch("--lang", "de", "gpus", "--help").stdout
    assert german == stepwatch("gpus", "--help", "--lang", "de").stdout
    assert german.startswith(b"Aufruf: ")


@pytest.mark.parametrize(
    ("asked", "what", "remedy"),
    [
        ("gpus 4070 4080", "余分な引数があります：4080", "すべてのオプション：stepwatch gpus --help"),
        ("collect logs", "指定されていません：--into", "すべてのオプション：stepwatch collect --help"),
        ("collect --into s", "指定されていません：場所...", "すべてのオプション：stepwatch collect --help"),
        ("explain --gpu", "--gpuには値が必要です", "すべてのオプション：stepwatch explain --help"),
        ("explain --full=1", "--fullに値は指定できません", "すべてのオプション：stepwatch explain --help"),
        ("explain --run 0", "「0」は--runの値として使えません", "--runには整数を指定してください：x>=1"),
        ("explain --format doc", "「doc」は--formatの値として使えません", "--formatはterminal | md | json"),
        ("watch --interval x", "「x」は--intervalの値として使えません", "--intervalには数値を指定してください：0.05<="),
        ("sample --seed x", "「x」は--seedの値として使えません", "--seedには数値を指定してください"),
        ("serve --allow /nowhere", "「/nowhere」は--allowの値として使えません", "--allowには存在する"),
    ],
)
def test_wrong_usage_is_said_in_the_language(asked: str, what: str, remedy: str) -> None:
    done = stepwatch(*asked.split(), LANG="ja_JP.UTF-8")
    first, second = done.stderr.decode().splitlines()
    assert (done.returncode, first) == (2, f"stepwatch: {what}")
    assert second.startswith(f"  {remedy}")
