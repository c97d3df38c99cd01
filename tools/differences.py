"""Shows what two versions of stepwatch answer differently.

    python tools/differences.py --old main                      # everything, against the working tree
    python tools/differences.py --old main --only explain:json  # quick, while working
    python tools/differences.py --old ../before --only 'advise:*,compare' --logs '*nanogpt/0*' --show 5

Every command is asked about `examples/` and the real logs ($STEPWATCH_CORPUS, else ../shared/corpus): `explain`,
`advise`, `compare` and `watch` about each log, `estimate` and `gpus` about a fixed set of settings and cards. A kind of
question is a command and a form, `explain:json`; `--kinds` lists them. The other languages, and rarer forms and
options, are only asked about the examples and every sixteenth log.

Each version runs in separate processes, in which stepwatch is imported once and called directly. The answers of the
old version are cached by the content of its source and of the log: a second run only asks the new version. So that
the same input gives the same bytes, logs are copied to a temporary directory with a fixed modification time, and the
clock stands still; only short pipes are watched. The drawing engine is replaced, since it takes four seconds per page:
a page contains a digest of each specification instead of its picture.

The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import hashlib
import inspect
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepwatch-differences"
CHANGED_AT_S = 1_750_000_000  # the modification time of every log; the current time is a minute later
NOW_S = CHANGED_AT_S + 60
LONGEST_S = 120  # for each answer
LARGEST_PIPED_BYTES = 500_000  # a longer pipe is read in pieces whose size depends on the load
SAMPLE = 16  # every sixteenth log is asked about in all languages and options
LOCALES = Path(__file__).parents[1] / "src" / "stepwatch" / "i18n" / "locales"
LANGUAGES = tuple(sorted(path.name for path in LOCALES.iterdir()))
MOST_DIFF_LINES = 60
ENVIRONMENT = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "LANG": "", "LANGUAGE": "", "TERM": "xterm-256color", "COLORTERM": ""}


class Question(NamedTuple):
    """One call of the command line. `kind` is the command and the form, `inputs` are the logs it is about."""

    kind: str
    arguments: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    columns: int = 80
    colour: bool = False
    piped: bool = False  # the input comes through standard input

    @property
    def label(self) -> str:
        extra = f"COLUMNS={self.columns} " if self.columns != 80 else ""
        pipe = f" < {self.inputs[0]}" if self.piped else ""
        return f"{extra}stepwatch {' '.join(self.arguments)}{pipe}"


# --- what is asked ----------------------------------------------------------------------------------------------


def questions(place: Path) -> Iterator[Question]:
    """All questions about the logs below a directory, whose paths are relative to it."""
    files = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    logs = [name for name in files if not name.endswith(".py")]
    directories = sorted({os.path.dirname(name) for name in logs})
    sample = {name for name in logs if name.startswith("examples/")} | set(logs[::SAMPLE])
    for name in logs:
        yield from _about_log(name, thoroughly=name in sample)
    for name in sorted(sample):
        if (place / name).stat().st_size <= LARGEST_PIPED_BYTES:
            for options in (("--gpu", "4070"), *(("--lang", language) for language in LANGUAGES)):
                yield Question("watch:pipe", ("watch", "-", *options), (name,), piped=True)
    for name in directories:
        yield from _in_forms("explain", (name,), ("json", "terminal", "md", "html"), "--gpu", "4070")
    for pair in pairwise(logs):
        yield from _about_two(pair, thoroughly=pair[0] in sample)
    yield from _about_plans()
    yield from _about_cards()


FORMS: dict[str, tuple[str, ...]] = {
    "terminal": (),
    "narrow": (),
    "colour": (),
    "full": ("--full",),
    "full-narrow": ("--full",),
    "json": ("--json",),
    "md": ("--md",),
    "html": ("--html",),
}


def _in_forms(command: str, inputs: tuple[str, ...], forms: Iterable[str], *options: str) -> Iterator[Question]:
    for form in forms:
        yield Question(
            f"{command}:{form}",
            (command, *inputs, *options, *FORMS[form]),
            inputs,
            columns=40 if form.endswith("narrow") else 80,
            colour=form == "colour",
        )


def _about_log(name: str, *, thoroughly: bool) -> Iterator[Question]:
    card = ("--gpu", "4070")
    yield from _in_forms("explain", (name,), ("json", "terminal"))
    yield from _in_forms("explain", (name,), ("json", "terminal", "narrow", "full", "md", "html"), *card)
    yield from _in_forms("advise", (name,), ("json", "terminal", "md"), *card)
    yield Question("watch:once", ("watch", name, "--once"), (name,))
    if not thoroughly:
        return
    yield from _in_forms("explain", (name,), ("full-narrow", "colour"), *card)
    yield from _in_forms("advise", (name,), ("narrow", "colour", "html"), *card)
    for language in LANGUAGES:
        yield from _in_forms("explain", (name,), ("terminal", "full", "md", "html"), *card, "--lang", language)
        yield from _in_forms("advise", (name,), ("terminal", "md", "html"), *card, "--lang", language)
        yield Question("watch:once", ("watch", name, "--once", "--lang", language), (name,))
    for line in (
        "explain --run 2",
        "explain --with-lines --full",
        "explain --md --front-matter",
        "explain --json --no-iterations",
        "explain --set max_iters=20000 --set batch_size=8",
        "explain --gpu 2xa100-80gb --full",
        "explain --gpu cpu",
        "explain --gpu no-such-card",
        "explain --config examples/train_gpt2_small.py --json",
        "advise",
        "advise --set max_iters=20000 --gpu a100-80gb",
        "advise --gpu 4090 --set mtbf_hours=24",
        "advise --gpu h100 --gpus 8 --json",
        "advise --run 2 --gpu 4070",
        "estimate --gpu 4070",
    ):
        command, *options = line.split()
        yield Question(f"{command}:options", (command, name, *options), (name,))
    yield Question("explain:pipe", ("explain", "-", *card), (name,), piped=True)


def _about_two(pair: tuple[str, str], *, thoroughly: bool) -> Iterator[Question]:
    yield from _in_forms("compare", pair, ("json", "terminal", "md"))
    if not thoroughly:
        return
    yield from _in_forms("compare", pair, ("narrow", "colour"))
    for language in LANGUAGES:
        yield from _in_forms("compare", pair, ("terminal", "md"), "--lang", language)
    yield Question("compare:options", ("compare", *pair, "--gpu", "A:4070", "--gpu", "B:4090"), pair)
    yield Question("compare:options", ("compare", *pair, "--fail-over", "5%", "--set", "batch_size=8"), pair)
    yield from _in_forms("explain", pair, ("terminal", "json"), "--gpu", "4070")


def _about_plans() -> Iterator[Question]:
    config = "examples/train_gpt2_small.py"
    shape = "--n_layer=8 --n_head=8 --n_embd=512"
    for line in (
        f"estimate {config}",
        f"estimate {config} --gpu 4070",
        f"estimate {config} --gpu 4070 --compile=False --dtype=float32",
        f"estimate {config} --gpu 2x4090 --why",
        f"estimate {config} --gpu a100-80gb --gpus 8 --link nvlink --why",
        f"estimate {config} --gpu h100 --gpus 16 --link infiniband --claim 2M-tokens/s",
        f"estimate {config} --gpu no-such-card",
        "estimate --gpu 4070 --set n_params=40e6 --set tokens_per_iter=524288 --claim 100ms",
        "estimate --gpu a100 --model gpt2-xl --claim 3h",
        "estimate --gpu 4090 --model gpt2 --claim 1s",
        "estimate --gpu h100 --depth 20 --gpus 8",
        "estimate --gpu v100 --model gpt2-medium --why",
        "estimate --gpu cpu --model gpt2",
        "estimate --gpu 4070 --batch_size=0",
        f"estimate --gpu t4 --batch_size=64 --why {shape}",
        f"advise {config} --gpu 4070",
        f"advise {config} --gpu 4070 --compile=False",
        f"advise {config} --gpu a100-80gb --gpus 8 --set mtbf_hours=24",
        "advise",
        "advise --gpu 4070",
        f"advise --gpu 4070-laptop {shape} --tokens_per_iter=524288",
        f"advise --gpu 4090 {shape} --tokens_per_iter=524288",
        "advise --gpu h100 --gpus 8 --model gpt2-xl",
        "advise --gpu a100 --depth 20",
    ):
        command, *options = line.split()
        inputs = tuple(option for option in options if option == config)
        options = [option for option in options if option != config]
        yield from _in_forms(command, inputs, ("terminal", "narrow", "colour", "json", "md", "html"), *options)
        for language in LANGUAGES:
            yield from _in_forms(command, inputs, ("terminal", "md", "html"), *options, "--lang", language)


def _about_cards() -> Iterator[Question]:
    for names in ((), ("4070",), ("a100-80gb",), ("NVIDIA GeForce RTX 4070 Laptop GPU",), ("no-such-card",), ("cpu",)):
        yield from _in_forms("gpus", (), ("terminal", "narrow", "json", "md"), *names)
        for language in LANGUAGES:
            yield from _in_forms("gpus", (), ("terminal", "md"), *names, "--lang", language)
    for command in ("explain", "estimate", "advise", "compare", "watch", "gpus", "serve", "train", "prepare"):
        yield Question("help:terminal", (command, "--help"))
    yield Question("help:terminal", ("--help",))


# --- asking, in processes of each version -----------------------------------------------------------------------


def _enter(source: str, place: str) -> None:
    """In a new process: this version's stepwatch, a clock that stands still, no drawing."""
    os.environ.update(ENVIRONMENT)
    os.environ["XDG_CONFIG_HOME"] = place  # no calibration of this machine
    os.environ.pop("NO_COLOR", None)
    time.tzset()
    time.time = lambda: float(NOW_S)
    condition: Any = threading.Condition
    patient = condition.wait_for  # a pipe is read to its end before anyone looks, however fast it comes
    condition.wait_for = lambda turn, ready, timeout=None: patient(turn, ready)
    os.chdir(place)
    sys.path.insert(0, source)
    sys.pycache_prefix = str(CACHE / "bytecode")  # nothing is written into either version
    sys.modules["vl_convert"] = _no_drawing()
    import stepwatch.cli

    found = os.path.dirname(os.path.dirname(stepwatch.__file__ or ""))
    assert os.path.samefile(found, source), f"{found} was imported, not {source}"


def _no_drawing() -> Any:
    engine: Any = types.ModuleType("vl_convert")

    def digest(spec: Any, **_: object) -> str:
        return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()

    engine.vegalite_to_svg = lambda spec, **options: f'<svg width="720" height="300">{digest(spec, **options)}</svg>'
    engine.vegalite_to_png = lambda spec, **options: digest(spec, **options).encode()
    engine.javascript_bundle = lambda *_, **__: ""
    engine.__version__ = "none"
    return engine


class _Capture(io.TextIOWrapper):
    def __init__(self, *, terminal: bool) -> None:
        self.bytes = io.BytesIO()
        self.terminal = terminal
        super().__init__(self.bytes, encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        return self.bytes.getvalue().decode("utf-8", "replace")


def _too_long(*_: object) -> None:
    raise TimeoutError(f"no answer after {LONGEST_S} s")


def ask(question: Question) -> bytes:
    """Exit code, output and errors, compressed. Runs where `_enter` was called."""
    from stepwatch.cli import main

    os.environ["COLUMNS"] = str(question.columns)
    out, errors = _Capture(terminal=question.colour), _Capture(terminal=False)
    before = sys.stdin, sys.stdout, sys.stderr, sys.argv
    end: object = 0
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LONGEST_S)
    try:
        with open(question.inputs[0] if question.piped else os.devnull, "rb") as stream:
            sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(stream, encoding="utf-8"), out, errors
            sys.argv = ["stepwatch", *question.arguments]
            main(list(question.arguments), prog_name="stepwatch")
    except SystemExit as stop:
        end = stop.code
    except Exception as fault:  # a traceback is an answer too, and names the fault
        end = f"{type(fault).__name__}: {fault}"
    finally:
        signal.alarm(0)
        sys.stdin, sys.stdout, sys.stderr, sys.argv = before
    parts = f"exit code: {end}\n", out.text(), f"\nstandard error:\n{errors.text()}"
    return zlib.compress("".join(parts).encode(), 1)


# --- the two versions -------------------------------------------------------------------------------------------


class Version:
    """The source of stepwatch in a directory, and its cached answers."""

    def __init__(self, source: Path) -> None:
        self.source = source
        asking = [inspect.getsource(part) for part in (_enter, _no_drawing, _Capture, ask)]
        digest = hashlib.sha256(f"{sys.version} {ENVIRONMENT} {NOW_S} {asking}".encode())
        for path in sorted(source.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes())
        self._answers = CACHE / "answers" / digest.hexdigest()[:20]

    def answers(
        self, asked: list[Question], place: Path, digests: dict[str, str], *, jobs: int, keep: bool
    ) -> dict[Question, bytes]:
        kept = {question: self._answers / _key(question, digests) for question in asked} if keep else {}
        known = {question: path.read_bytes() for question, path in kept.items() if path.is_file()}
        left = [question for question in asked if question not in known]
        if left:
            spawn = multiprocessing.get_context("spawn")
            start = str(self.source), str(place)
            with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_enter, initargs=start) as pool:
                for question, answer in zip(left, pool.map(ask, left, chunksize=4), strict=True):
                    known[question] = answer
                    if keep:
                        _store(kept[question], answer)
        return known


def _key(question: Question, digests: dict[str, str]) -> str:
    about = [digest for name, digest in digests.items() if any(_within(name, part) for part in question.inputs)]
    return hashlib.sha256(json.dumps([question, about]).encode()).hexdigest()[:32]


def _within(name: str, part: str) -> bool:
    return name == part or name.startswith(part + "/")


def _store(path: Path, answer: bytes) -> None:
    """Writes in one step: several processes may fill the same cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:
        stream.write(answer)
    os.replace(stream.name, path)


def _source_of(name: str, repository: Path) -> Path:
    """`src` of a directory, or of a commit, which is written to the cache."""
    if (Path(name) / "src" / "stepwatch").is_dir():
        return (Path(name) / "src").resolve()
    git = ["git", "-C", str(repository)]
    commit = subprocess.run(
        [*git, "rev-parse", "--verify", f"{name}^{{commit}}"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not commit:
        raise SystemExit(f"{name} is neither a directory with src/stepwatch nor a commit")
    place = CACHE / "sources" / commit
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as part:
            archive = subprocess.run([*git, "archive", commit, "src"], capture_output=True, check=True).stdout
            subprocess.run(["tar", "-x", "-C", part], input=archive, check=True)
            shutil.copytree(part, place, dirs_exist_ok=True)
    return place / "src"


def _copy_logs(repository: Path, place: Path) -> dict[str, str]:
    """The logs below one directory, each with the digest of its content."""
    corpus = Path(os.environ.get("STEPWATCH_CORPUS") or repository.parent / "shared" / "corpus")
    shutil.copytree(repository / "examples", place / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    if corpus.is_dir():
        shutil.copytree(corpus, place / "corpus", copy_function=shutil.copyfile)
    else:
        print(f"No real logs in {corpus}: the examples alone.", file=sys.stderr)
    digests = {}
    for path in sorted(place.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
        else:
            digests[path.relative_to(place).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
            os.utime(path, (CHANGED_AT_S, CHANGED_AT_S))
    return digests


# --- what differs -----------------------------------------------------------------------------------------------


def _lines(kind: str, answer: bytes) -> list[str]:
    """Lines to compare: JSON is indented, each element of a page is on a separate line."""
    text = zlib.decompress(answer).decode()
    if kind.endswith(":html"):
        text = text.replace("><", ">\n<").replace('","', '",\n"').replace("},{", "},\n{")
    elif kind.endswith(":json"):
        code, rest = text.split("\n", 1)
        body, _, errors = rest.rpartition("\nstandard error:\n")
        with suppress(ValueError):  # a complaint is not JSON
            text = f"{code}\n{json.dumps(json.loads(body), indent=1, ensure_ascii=False)}\n{errors}"
    return text.splitlines()


def _show(question: Question, old: bytes, new: bytes) -> None:
    print(f"\n=== {question.kind}: {question.label}")
    kind = question.kind
    diff = list(difflib.unified_diff(_lines(kind, old), _lines(kind, new), "old", "new", n=1, lineterm=""))
    for line in diff[:MOST_DIFF_LINES]:
        print(line[:200])
    if len(diff) > MOST_DIFF_LINES:
        print(f"… and {len(diff) - MOST_DIFF_LINES} more lines")


def _one_of_each_kind_first(differing: list[Question]) -> list[Question]:
    seen: Counter[str] = Counter()
    ranked = []
    for question in differing:
        ranked.append((seen[question.kind], question))
        seen[question.kind] += 1
    return [question for _, question in sorted(ranked, key=lambda pair: pair[0])]


def _matches(kind: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(kind, pattern if ":" in pattern else f"{pattern}:*") for pattern in patterns)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--old", default="HEAD", help="a commit, or a directory with src/stepwatch (default: HEAD)")
    parser.add_argument("--new", default=".", help="the same for the new version (default: this directory)")
    parser.add_argument("--only", default="*:*", help="kinds of questions, with commas: explain:json, advise, '*:html'")
    parser.add_argument("--logs", metavar="GLOB", help="only questions about these logs: 'corpus/nanogpt/*'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("--show", type=int, default=3, help="how many differences to show in full (default: 3)")
    parser.add_argument("--names", action="store_true", help="name every question that is answered differently")
    parser.add_argument("--kinds", action="store_true", help="list the kinds of questions, and ask none")
    return parser.parse_args()


def main() -> int:
    options = _options()
    repository = Path(options.new if Path(options.new).is_dir() else ".").resolve()
    with tempfile.TemporaryDirectory(prefix="stepwatch-differences-") as directory:
        place = Path(directory)
        digests = _copy_logs(repository, place)
        asked = [one for one in dict.fromkeys(questions(place)) if _matches(one.kind, options.only.split(","))]
        if options.logs:
            asked = [one for one in asked if any(fnmatch.fnmatch(name, options.logs) for name in one.inputs)]
        counts = Counter(question.kind for question in asked)
        if options.kinds:
            print("\n".join(f"{kind:24}{count:6}" for kind, count in counts.items()))
            return 0
        answers = []
        for name, keep in ((options.old, True), (options.new, False)):
            begun = time.perf_counter()
            version = Version(_source_of(name, repository))
            try:
                answers.append(version.answers(asked, place, digests, jobs=options.jobs, keep=keep))
            except BrokenProcessPool as fault:
                raise SystemExit(f"{name}: {fault}") from fault
            print(f"{name}: {len(asked)} answers in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    old, new = answers
    differing = [question for question in asked if old[question] != new[question]]
    for question in _one_of_each_kind_first(differing)[: options.show]:
        _show(question, old[question], new[question])
    if options.names:
        print("\n".join(f"{question.kind}: {question.label}" for question in differing))
    if differing:
        print()
    for kind, count in Counter(question.kind for question in differing).items():
        print(f"{kind:24}{count:6} of {counts[kind]} differ")
    print(f"{len(differing)} of {len(asked)} answers differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
