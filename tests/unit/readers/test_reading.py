"""Lines of two programs in one text: both logs are read, or the one that tells times."""

from __future__ import annotations

import pytest
from tools.formats_page import example_of

from stepwatch.errors import NoIterations
from stepwatch.readers import read
from stepwatch.readers.formats import FORMATS, Reader, all_readers, reader_of
from stepwatch.readers.reading import strongest_claim
from stepwatch.sources import from_text, place_of_line

NANOGPT = "".join(f"iter {n}: loss 4.0, time {100 + n % 3}.00ms, mfu 5.00%\n" for n in range(0, 400, 10))
LLM_C = "".join(
    f"step {n:4d}/500 | loss 4.{n:06d} (+0.1z)| norm 0.7 (+0.1z)| lr 1.0e-04 | 250.0 ms | 40.0% bf16 MFU | 2000 tok/s\n"
    for n in range(1, 60)
)
KILLED = "slurmstepd: error: *** JOB 12 ON node7 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize("order", [("nanogpt", "llm.c"), ("llm.c", "nanogpt")])
def test_two_logs_in_one_file_are_two_runs(order: tuple[str, str]) -> None:
    texts = {"nanogpt": NANOGPT, "llm.c": LLM_C + KILLED}
    text = "".join(texts[name] for name in order)
    runs = read(from_text(text))
    assert tuple(run.format for run in runs) == order
    for run in runs:
        lines = text.split("\n")
        mark = "iter " if run.format == "nanogpt" else "bf16 MFU"
        assert all(mark in lines[line] for line in run.iterations.line.tolist())
        assert [fault.kind for fault in run.faults] == (["killed"] if run.format == "llm.c" else [])


def test_a_bar_before_the_training_is_no_run() -> None:
    bars = "".join(f" {n}0%|###   | {n}/10 [00:0{n}<00:09,  1.00it/s]\n" for n in range(1, 9))
    (run,) = read(from_text(bars + NANOGPT))
    assert run.format == "nanogpt"


def test_the_program_whose_lines_tell_no_time_yields_to_the_other() -> None:
    losses = "".join(f"{{'loss': 3.{n:03d}, 'learning_rate': 1e-05, 'epoch': 0.{n:02d}}}\n" for n in range(10, 40))
    timers = "".join(f"steps: {n} loss: 3.2 lm loss: 3.1 iter time (s): 0.500 samples/sec: 64.0\n" for n in (10, 20))
    (run,) = read(from_text(losses + timers))
    assert (run.format, run.iterations.time_s.tolist()) == ("deepspeed", [0.5, 0.5])


def test_iterations_that_cannot_be_read_are_not_said_to_be_missing() -> None:
    header = "Total batch size 262,144 => gradient accumulation steps: 8\n"
    lines = "".join(f"step {n:05d}/00462 (0.00%) | loss: 10.3 | dt: {n},50ms | tok/sec: 13,665 |\n" for n in range(9))
    with pytest.raises(NoIterations, match="nearest line"):
        read(from_text(header + lines))


@pytest.mark.parametrize("comma", ["0,34", "12,5", "3600,00", "1,2345"])
@pytest.mark.parametrize("name", ["llm.c", "build-nanogpt", "nanochat", "megatron", "litgpt"])
def test_a_decimal_comma_is_never_taken_for_thousands(name: str, comma: str) -> None:
    (run, *_) = read(from_text(example_of(name) + "\n"))
    time = f"{run.iterations.time_s[-1] * 1e3:.2f}"
    text = example_of(name).replace(time, comma).replace(time.rstrip("0").rstrip("."), comma)
    assert comma in text
    try:
        found = {round(float(time) * 1e3, 4) for run in read(from_text(text)) for time in run.iterations.time_s}
    except NoIterations:
        found = set()
    assert not found & {float(comma.replace(",", "")), float(comma.split(",")[0])}


@pytest.mark.parametrize("line", [0, 1, 2, 700, 70_000, 99_999])
def test_place_of_a_line(line: int) -> None:
    text = b"".join(b"%d\n" % n for n in range(100_000))
    assert text[place_of_line(text, line) :].startswith(b"%d\n" % line)


def test_a_weak_format_is_asked_only_where_no_other_claims_more() -> None:
    asked: list[str] = []

    def claims(name: str, hits: float, strongest: float) -> Reader:
        def sniff(head: bytes) -> float:
            asked.append(name)
            return hits

        return reader_of("nanogpt")._replace(name=name, sniff=sniff, strongest=strongest)

    weak, silent, clear = claims("weak", 0.5, 0.9), claims("silent", 0.0, 60.0), claims("clear", 2.0, 60.0)

    assert strongest_claim(b"", {"weak": weak, "silent": silent}) == ("weak", 0.5)
    assert asked == ["silent", "weak"]
    asked.clear()
    assert strongest_claim(b"", {"weak": weak, "silent": silent, "clear": clear}) == ("clear", 2.0)
    assert asked == ["silent", "clear"]
    asked.clear()
    full, late = claims("full", 60.0, 60.0), claims("late", 60.0, 60.0)
    assert strongest_claim(b"", {"silent": silent, "full": full, "late": late}) == ("full", 60.0)
    assert asked == ["silent", "full"]  # the first of those that claim the most


@pytest.mark.parametrize("reader", all_readers().values(), ids=FORMATS)
def test_no_format_claims_more_than_its_strongest(reader: Reader) -> None:
    lines = example_of(reader.name).splitlines()
    many = "\n".join(line for _ in range(200) for line in lines)
    assert all(other.sniff(many.encode()) <= other.strongest for other in all_readers().values())
