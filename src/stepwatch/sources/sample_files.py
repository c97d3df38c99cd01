"""Files of samples: our own, `nvidia-smi --query-gpu … --format=csv`, `nvidia-smi dmon`, `dcgmi dmon`, `gpustat --json`
and what Prometheus exports of DCGM.

Each is read into rows (time, card, figures), in the order of the file. Consecutive rows of different cards are one
sample: a card that appears again starts the next one.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np

from stepwatch import bounds
from stepwatch.errors import InputError, UnreadableInput, UsageError
from stepwatch.messages import Message
from stepwatch.run import Floats, Ints
from stepwatch.samples import (
    ARRIVALS_FILE,
    CARD,
    LOG_FILE,
    MACHINE,
    SAMPLES_FILE,
    SCHEMA,
    slowed_by,
)
from stepwatch.samples.columns import Card, Samples
from stepwatch.sources import LARGEST_EXPANSION_BYTES, Source, from_file, printable, unreadable
from stepwatch.sources.contents import head_of, too_large
from stepwatch.sources.directories import samples_in
from stepwatch.sources.stored import LineSplitter
from stepwatch.units import MEGA

_MIB, _PERCENT = 1024.0**2, 0.01


def _plain(name: str) -> str:
    """A column's name as one word: some write utilization.gpu, some utilization_gpu."""
    return re.sub(r"[ .]", "_", name.lower())


# Our name of a column, the factor to multiply by, and the names that tools give it.
_COLUMNS = (
    *((name, 1.0, name) for name in CARD),
    ("utilisation", _PERCENT, "utilization_gpu gpu_utilization gpu_util sm gputl utilization utilisation_gpu gpu_use"),
    ("utilisation", _PERCENT, "dcgm_fi_dev_gpu_util"),
    ("memory_used_bytes", _MIB, "memory_used fb fbusd gpu_memory_used gpu_mem_used mem_used dcgm_fi_dev_fb_used"),
    ("memory_used_bytes", 1.0, "vram_total_used_memory"),
    ("memory_total_bytes", _MIB, "memory_total fbttl gpu_memory_total gpu_mem_total mem_total dcgm_fi_dev_fb_total"),
    ("memory_total_bytes", 1.0, "vram_total_memory"),
    ("memory_free_bytes", _MIB, "memory_free dcgm_fi_dev_fb_free"),
    ("sm_clock_hz", MEGA, "clocks_sm clocks_current_sm clocks_gr clocks_current_graphics sm_clock pclk smclk"),
    ("sm_clock_hz", MEGA, "dcgm_fi_dev_sm_clock sclk_clock_speed"),
    ("max_sm_clock_hz", MEGA, "clocks_max_sm clocks_max_graphics"),
    ("power_w", 1.0, "power_draw power_draw_instant power_draw_average pwr power gpu_power gpu_power_draw"),
    ("power_w", 1.0, "dcgm_fi_dev_power_usage average_graphics_package_power current_socket_graphics_package_power"),
    ("power_limit_w", 1.0, "enforced_power_limit power_limit max_graphics_package_power"),
    ("temperature_c", 1.0, "temperature_gpu temperature gtemp temp tmptr gpu_temp gpu_temperature"),
    ("temperature_c", 1.0, "dcgm_fi_dev_gpu_temp temperature_(sensor_edge)"),
    ("hot", 1.0, "tviol"),
    ("capped", _PERCENT, "pviol"),
    ("pcie_bytes_per_s", 1e6, "rxpci txpci"),
)
_NAMES = {name: (ours, factor) for ours, factor, names in _COLUMNS for name in names.split()}
_REASONS = ("clocks_throttle_reasons_", "clocks_event_reasons_")
_KEYS = ("index", "gpu", "gpu_index", "gpu_id", "uuid", "gpu_uuid", "pci_bus_id", "gpu_bus_id", "id", "idx")
_UNITS = {"GIB": 1024.0, "GB": 1024.0, "KIB": 1 / 1024.0, "GHZ": 1000.0, "KW": 1000.0, "MW": 1e-3}
_VALUE = re.compile(r"\s*([-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)\s*([%A-Za-z/]*)\s*$", re.IGNORECASE)


class _Row(NamedTuple):
    at_s: float | None
    card: str | None
    """Its index or identifier; None for the machine itself."""
    name: str
    figures: Mapping[str, float]


def read_samples(path: str | os.PathLike[str]) -> Samples:
    """The samples in a file or in the directory of a run. Raises InputError if there are none."""
    path = os.fspath(path)
    file = samples_in(path) or os.path.join(path, SAMPLES_FILE) if os.path.isdir(path) else path
    try:
        is_parquet = os.path.isfile(file) and head_of(file, 4) == b"PAR1"
    except OSError as error:
        raise unreadable(file, error) from error
    if is_parquet:
        source = Source(printable(os.path.basename(file)), lines_of_parquet(file, LARGEST_EXPANSION_BYTES))
    else:
        source = from_file(file)
    samples = samples_of(source)
    return replace(samples, arrivals=_arrivals(path)) if os.path.isdir(path) else samples


def _arrivals(path: str) -> tuple[Floats, Ints] | None:
    """Converts how many bytes had arrived to how many lines, with lines as readers count them."""
    try:
        with open(os.path.join(path, ARRIVALS_FILE), encoding="utf-8", errors="replace") as file:
            cells = (line.strip().partition(",") for line in file)
            pairs = [(bounds.within(bounds.CLOCK_S, _number(time)), _number(size)) for time, _, size in cells]
        with open(os.path.join(path, LOG_FILE), "rb") as log:
            text, counts, lines = LineSplitter(), [], 0
            whole = os.fstat(log.fileno()).st_size
            for _, size in pairs:
                lines += text.feed(log.read(max(int(min(size or 0, whole)) - log.tell(), 0))).count(b"\n")
                counts.append(lines)
    except OSError:
        return None
    known = [place for place, (time, size) in enumerate(pairs) if time is not None and size is not None]
    return (np.array([pairs[place][0] for place in known]), np.array(counts)[known]) if known else None


def samples_of(source: Source) -> Samples:
    text = source.text.decode("utf-8", "replace")
    lines = text.splitlines()
    start = text.lstrip()[:1]
    if start in "{[" and start:
        rows: Iterable[_Row] = _json_rows(text)
    elif text.startswith(f"# {SCHEMA}"):
        rows = _own_rows(lines)
    elif any(line.startswith(("DCGM_", "# HELP DCGM_", "# TYPE DCGM_")) for line in lines[:200]):
        rows = _exposition_rows(lines)
    elif any(line.lstrip().startswith("#") for line in lines[:20]):
        rows = _dmon_rows(lines)
    else:
        rows = _csv_rows(lines)
    samples = _pivot(list(rows), source.name)
    if not len(samples) or not (samples.cards or samples.machine):
        raise InputError(
            Message("“{name:word}” contains no samples of a machine", {"name": printable(source.name)}),
            Message(
                "known: `stepwatch monitor`, nvidia-smi (--format=csv, dmon), dcgmi dmon, gpustat --json, Prometheus"
            ),
            about="samples",
        )
    return samples


# --- the forms --------------------------------------------------------------------------------------------------


def _own_rows(lines: list[str]) -> Iterator[_Row]:
    """One line for each sample; the first line names the cards."""
    names = lines[0].split("\t")[1:]
    reader = csv.DictReader(lines[1:])
    for record in reader:
        at_s = _number(record.get("time_s"))
        if at_s is None or None in record.values():  # cut off in the middle
            continue
        yield _Row(
            at_s, None, "", {name: value for name in MACHINE if (value := _number(record.get(name))) is not None}
        )
        for index, card in enumerate(names):
            figures = {name: _number(record.get(f"gpu{index}_{name}")) for name in CARD}
            yield _Row(at_s, str(index), card, {name: value for name, value in figures.items() if value is not None})


def _csv_rows(lines: list[str]) -> Iterator[_Row]:
    """The header may be repeated, and tables of a plain nvidia-smi may be in between; spreadsheets use ; or tabs."""
    header: list[str] = []
    units: list[str] = []
    first = next((line for line in lines if "timestamp" in line.lower() or "gpu" in line.lower()), "")
    separator = max(",;\t", key=first.count)
    for fields in csv.reader((line.replace("\0", "") for line in lines), skipinitialspace=True, delimiter=separator):
        cells = [cell.strip() for cell in fields]
        # "power.draw [W]" of nvidia-smi, "Power (W)" of people's own scripts.
        parts = [re.split(r"\s*[\[(]", cell.rstrip("])"), maxsplit=1) for cell in cells]
        names = [_plain(name) for name, *_ in parts]
        if sum(name in _NAMES or name in _KEYS or name == "timestamp" for name in names) > 1:
            header, units = names, ["".join(unit) for _, *unit in parts]
        elif header and len(cells) == len(header):
            record = dict(zip(header, cells, strict=True))
            figures = _figures(zip(header, cells, units, strict=True))
            if figures:
                key = next((record[name] for name in _KEYS if name in record), "0")
                at_s = next(
                    (_clock(record[name]) for name in ("timestamp", "time", "time_s", "date") if name in record), None
                )
                yield _Row(at_s, key, record.get("name", record.get("gpu_name", "")), figures)


def _dmon_rows(lines: list[str]) -> Iterator[_Row]:
    """`nvidia-smi dmon` and `dcgmi dmon`: names in a comment, dashes for unknown."""
    header: list[str] = []
    for line in lines:
        cells = line.lstrip("# \t").split()
        if line.lstrip().startswith("#"):
            names = [cell.lower() for cell in cells]
            header = names if sum(name in _NAMES for name in names) > 1 else header
            continue
        if cells[:1] == ["GPU"]:  # of dcgmi: the entity is two words
            cells = cells[1:]
        if not header or len(cells) != len(header):
            continue
        record = dict(zip(header, cells, strict=True))
        figures = _figures((name, value, "") for name, value in record.items())
        at_s = (
            _clock(f"{record['date']} {record.get('time', '')}") if "date" in record else _clock(record.get("time", ""))
        )
        if figures:
            key = next((record[name] for name in ("gpu", "idx", "entity") if name in record), "0")
            yield _Row(at_s, key, "", figures)


def _json_rows(text: str) -> Iterator[_Row]:
    """gpustat's snapshots one after the other, or Prometheus' answer to a range query."""
    decoder, at = json.JSONDecoder(), 0
    while (begin := re.compile(r"[\[{]").search(text, at)) is not None:
        try:
            value, at = decoder.raw_decode(text, begin.start())
        except ValueError:
            return  # the last one may be cut off
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, dict):
                yield from _gpustat_rows(entry)
                yield from _rocm_rows(entry)
                yield from _range_rows(entry)


def _gpustat_rows(entry: Mapping[str, Any]) -> Iterator[_Row]:
    at_s = _clock(str(entry.get("query_time", "")))
    cards = entry.get("gpus")
    for card in cards if isinstance(cards, list) else ():
        if isinstance(card, dict):
            figures = _figures(
                (str(name), str(value), "") for name, value in card.items() if not isinstance(value, list)
            )
            yield _Row(at_s, str(card.get("index", card.get("uuid", 0))), str(card.get("name", "")), figures)


def _rocm_rows(entry: Mapping[str, Any]) -> Iterator[_Row]:
    """`rocm-smi --json`: "card0" with names that include their unit, and a clock rate in brackets. It has no time."""
    for key, card in entry.items():
        number = re.fullmatch(r"card(\d+)", key)
        if number is not None and isinstance(card, dict):
            plain = {re.sub(r" *\([^)]*\)$|:$", "", str(name)): str(value).strip("()") for name, value in card.items()}
            figures = _figures((name, value, "") for name, value in plain.items())
            yield _Row(None, number[1], plain.get("Card Series", plain.get("Card series", "")), figures)


def _range_rows(entry: Mapping[str, Any]) -> Iterator[_Row]:
    data = entry.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    figures: dict[tuple[float, str], dict[str, float]] = {}
    names: dict[str, str] = {}
    for series in result if isinstance(result, list) else ():
        metric = series.get("metric") if isinstance(series, dict) else None
        if not isinstance(metric, dict):
            continue
        key = str(metric.get("gpu", metric.get("UUID", "0")))
        names[key] = str(metric.get("modelName", ""))
        for pair in series.get("values", ()):
            at_s = _number(str(pair[0])) if isinstance(pair, list) and len(pair) == 2 else None
            if at_s is not None:
                found = _figures([(str(metric.get("__name__", "")), str(pair[1]), "")])
                figures.setdefault((at_s, key), {}).update(found)
    for (at_s, key), found in sorted(figures.items()):
        yield _Row(at_s, key, names[key], found)


def _exposition_rows(lines: list[str]) -> Iterator[_Row]:
    """What DCGM's exporter serves, scrape after scrape: `NAME{labels} value [milliseconds]`."""
    series = re.compile(r"(DCGM_\w+)\{([^}]*)\}\s+(\S+)(?:\s+(\d{10,}))?")
    for line in lines:
        found = series.match(line)
        if found is None:
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', found[2]))
        figures = _figures([(found[1], found[3], "")])
        if figures:
            at_s = float(found[4]) * 1e-3 if found[4] else None
            yield _Row(at_s, labels.get("gpu", "0"), labels.get("modelName", ""), figures)


# --- cells ------------------------------------------------------------------------------------------------------


def _figures(cells: Iterable[tuple[str, str, str]]) -> dict[str, float]:
    """Figures in our names and units; what a tool does not know is left out."""
    figures: dict[str, float] = {}
    for name, text, unit in cells:
        name = _plain(name)
        if name.startswith(_REASONS):
            reason = name.partition("reasons_")[2]
            if reason == "active" and re.fullmatch(r"0x[0-9A-Fa-f]{1,16}", text):
                figures["hot"], figures["capped"] = map(float, slowed_by(int(text, 16)))
            elif text in ("Active", "Not Active") and ("thermal" in reason or "power" in reason):
                column = "hot" if "thermal" in reason else "capped"
                figures[column] = max(figures.get(column, 0.0), float(text == "Active"))
            continue
        ours, factor = _NAMES.get(name, ("", 0.0))
        found = _VALUE.match(text)
        if not ours or found is None:
            continue
        factor *= _UNITS.get((found[2] or unit).upper(), 1.0)
        figures[ours] = figures.get(ours, 0.0) * (name == "txpci") + float(found[1]) * factor
    free = figures.pop("memory_free_bytes", None)
    if free is not None and "memory_used_bytes" in figures:
        figures.setdefault("memory_total_bytes", figures["memory_used_bytes"] + free)
    return {name: value for name, value in figures.items() if np.isfinite(value)}


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and np.isfinite(value) else None


def _clock(text: str) -> float | None:
    """A date without a zone is taken as UTC, as in logs: an error of whole quarters of an hour is found later."""
    value = _number(text.strip())
    if value is not None:
        return value * (1e-3 if value > 1e11 else 1.0)  # from milliseconds
    try:
        found = datetime.fromisoformat(re.sub(r"^(\d{4})[/]?(\d\d)[/]?(\d\d)", r"\1-\2-\3", text.strip()))
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC).timestamp()


# --- columns ----------------------------------------------------------------------------------------------------


def _pivot(rows: list[_Row], source: str) -> Samples:
    """Rows to columns; a file without any clock counts its samples as seconds."""
    sweeps: list[list[_Row]] = []
    seen: set[tuple[str | None, str]] = set()
    for row in rows:
        keys = {(row.card, name) for name in row.figures} or {(row.card, "")}
        if not sweeps or seen & keys:
            sweeps.append([])
            seen = set()
        sweeps[-1].append(row)
        seen |= keys
    outside: list[str] = []
    clocks = [next((row.at_s for row in sweep if row.at_s is not None), np.nan) for sweep in sweeps]
    at_s = np.array([clock if bounds.CLOCK_S.holds(clock) else np.nan for clock in clocks])
    has_clock = bool(len(at_s)) and bool(np.isfinite(at_s).all())
    if not has_clock:
        at_s = np.arange(len(sweeps), dtype=float)
    machine: dict[str, Any] = {}
    cards: dict[str, tuple[str, dict[str, Any]]] = {}
    for position, sweep in enumerate(sweeps):
        for row in sweep:
            columns = machine if row.card is None else cards.setdefault(row.card, (row.name, {}))[1]
            for figure, value in row.figures.items():
                if not bounds.of_sample(figure).holds(value):
                    outside.append(figure)
                    continue
                if figure not in columns:
                    columns[figure] = np.full(len(sweeps), np.nan)
                columns[figure][position] = value
    order = np.argsort(at_s, kind="stable")
    return Samples(
        at_s=at_s[order],
        machine={name: column[order] for name, column in machine.items()},
        cards=tuple(
            Card(
                int(key) if key.isdecimal() and len(key) < 10 else index,
                name,
                {column: values[order] for column, values in columns.items()},
            )
            for index, (key, (name, columns)) in enumerate(cards.items())
        ),
        has_clock=has_clock and float(at_s.min()) > 1e8,  # 1973: anything below is a time since the start
        source=source,
        outside=tuple(outside),
    )


def lines_of_parquet(path: str, limit: int) -> bytes:
    """A Parquet file, ours or that of another program, as the same table in CSV.

    Raises UnreadableInput if it is damaged or would be larger than the limit.
    """
    try:
        from pyarrow import ArrowException, BufferReader, parquet
        from pyarrow.csv import write_csv
    except ImportError:
        raise UsageError(
            Message("to read and write Parquet, stepwatch needs pyarrow"), Message('pip install "stepwatch[parquet]"')
        ) from None
    try:
        with open(path, "rb") as raw:
            data = raw.read(limit + 1)
        if len(data) > limit:
            raise too_large(limit)
        # A file would be read by a thread, which can abort Python if it exits soon after.
        with parquet.ParquetFile(BufferReader(data)) as file:
            if file.metadata.num_rows * file.metadata.num_columns * 8 > limit:  # bytes of a number
                raise too_large(limit)
            table = file.read(use_threads=False)
        text = io.BytesIO()
        write_csv(table, text)
    except (ArrowException, OSError) as error:
        facts = {"name": path, "reason": type(error).__name__}
        raise UnreadableInput(Message("“{name:word}” cannot be read: {reason:word}", facts)) from error
    known = table.schema.metadata or {}
    head = b"# " + known[b"schema"] + b"\t" + known.get(b"cards", b"") if b"schema" in known else b""
    return (head + b"\n" if head else b"") + text.getvalue()
