"""The answer to `explain`: the runs in a log or a directory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from stepwatch.analysis.findings import INFO, NOTICE, WARNING
from stepwatch.analysis.phases import Phase
from stepwatch.analysis.statistics import every_nth
from stepwatch.i18n import clean
from stepwatch.messages import Message
from stepwatch.platforms import quoted, quoted_path
from stepwatch.presenters import advice_answer, overview_answer
from stepwatch.presenters import document as doc
from stepwatch.presenters import run_sentences as sentences
from stepwatch.presenters.document import UNKNOWN, count, sections, texts, time, word
from stepwatch.presenters.run_sentences import BADGES, PART_NAMES, share_text, verdict_headline
from stepwatch.settings import Origin
from stepwatch.verdict import Status

if TYPE_CHECKING:
    from stepwatch.analysis import Analysis
    from stepwatch.presenters import Typed
    from stepwatch.report import Report, RunReport
    from stepwatch.run.more import ReadLine, Understood


MOST_OPEN_RUNS = 4
"""Up to this many runs are open and get charts; of more, only the worst and the longest: nobody reads fifty charts."""

# The sections of findings that do not go to the general list.
_PLACES = {
    **dict.fromkeys(("evaluation_spikes", "silent_evaluations"), "slow"),
    **dict.fromkeys(("first_iteration", "mfu_sentinel"), "first"),
    **dict.fromkeys(("slow_rank", "rank_hiccup", "ranks_even", "rank_missing", "rank_ended"), "ranks"),
    **dict.fromkeys(
        ("mfu_other_card", "mfu_smoothed", "impossible_figure", "unsynchronised", "busy_when_logging"), "speed"
    ),
}
# What the table, the headline or the legend of the first screen already says.
_SAID_ABOVE = {"evaluation_spikes", "silent_evaluations", "checkpoint_cost", "several_runs", "mfu_sentinel"}
# What the verdict says in its own words.
_SAID_FIRST = {"ended_early", "loss_nan", "sleep"}
_RANK = {WARNING: 0, NOTICE: 1, INFO: 2}

LEGEND = {
    doc.STEP: Message("step"),
    "e": Message("evaluation"),
    "c": Message("with checkpoint"),
    "0": Message("first iteration"),
    "!": Message("stall"),
}


# --- the document -----------------------------------------------------------------------------------------------


def report_document(
    report: Report, *, full: bool = False, with_lines: bool = False, typed: Typed | None = None, brief: bool = False
) -> doc.Document:
    """A single run is the whole document; several runs are sections below an overview table.

    `brief` leaves out what the first screen never shows.
    """
    chosen = report.longest if len(report.runs) > 1 else 0
    title = Message("Report on a training run")
    names = report.inputs or tuple(dict.fromkeys(a.run.source for a in report.analyses))
    about = names[0] if len(names) == 1 and names[0] not in ("", "-") else None
    ask = tuple(next_commands(report, report.runs[chosen], full=full, typed=typed))
    end = (
        *sections(doc.Section("next", Message("What to ask next"), ask, prompt=True)),
        *(_unread(report.analyses) if with_lines else ()),
    )
    understood = understood_blocks(report.understood) if report.understood is not None else ()
    if len(report.runs) == 1 and not (report.unstarted or report.directory):
        blocks, parts = _run(report, report.runs[0], full=full, brief=brief)
        return doc.Document(title, (*understood, *blocks), (*parts, *end), about=about)
    title = Message("Which runs have a problem")
    order = report.worst_first
    opened = set(order) if len(order) <= MOST_OPEN_RUNS else {order[0], chosen}
    runs = []
    for row in sorted(order, key=lambda row: row not in opened):
        below = report.directory or row != chosen
        if brief and below:
            continue
        run = report.runs[row]
        blocks, parts = _run(report, run, row + 1, full=full, drawn=row in opened, brief=brief)
        heading = Message("Run {number:n}", {"number": row + 1})
        if report.directory or len(names) > 1:
            heading = Message("Run {number:n}: {source:word}", {"number": row + 1, "source": run.analysis.run.source})
        runs.append(
            doc.Section(
                "run",
                heading,
                blocks,
                parts,
                below=below,
                folded=row not in opened,
                anchor=overview_answer.anchor(row),
                badge=BADGES[run.verdict.status],
            )
        )
    lead = overview_answer.of_directory(report) if report.directory else overview_answer.of_log(report, chosen)
    return doc.Document(title, (*understood, *lead), (*runs, *end), about=about)


def _run(
    report: Report, run: RunReport, number: int = 0, *, full: bool, drawn: bool = True, brief: bool
) -> tuple[tuple[doc.Block, ...], tuple[doc.Section, ...]]:
    """The blocks and sections of one run, in order; `number` is 0 if it is the only one."""
    a, found = run.analysis, _findings(report, run)
    # Charts of several runs carry the run's number, and share the maximum number of points of a page.
    sharing = 1 if not number else MOST_OPEN_RUNS if drawn else 0
    charts = {
        name: doc.Chart(f"{name}-{number}" if number else name, run if sharing else None, sharing)
        for name in ("times", "anatomy", "throughput", "forecast", "machine", "changes", "parts")
    }
    more: dict[str, tuple[doc.Block, ...]] = defaultdict(tuple)
    if not brief:
        more |= _below_the_screen(run, charts, full=full)
    lead: list[doc.Block] = [verdict_headline(run.verdict)]
    if a.run.source not in ("", "-"):
        lead.append(doc.Text((Message("Log: {source:word}", {"source": a.run.source}),), "aside"))
    lead.append(doc.Labelled(tuple(sentences.figures(run)), doc.Priority.ALWAYS, figures=True))
    spent = doc.Shares(f"spent-{number}", sentences.part_rows(a), doc.Priority.ALWAYS)
    fine = doc.Text(())
    if run.fine:
        fine = doc.Text((Message("Checked and fine: {all:said}.", {"all": run.fine}),), priority=doc.Priority.EXTRA)
    changes: tuple[doc.Section, ...] = ()
    if run.advice is not None and run.advice.advice:
        changes = tuple(advice_answer.changes(run.advice, pressing=True))
    times, rows = charts["times"]._replace(priority=doc.Priority.MAIN), a.run.iterations
    if len(rows) > 1 and np.isfinite(rows.time_s).all():
        marks, enough = {}, 20_000  # rows: enough for the median of each column, and more than the chart has places
        for mark, phases in sentences.MARKS.items():
            drawn_rows = a.phases.of(*phases)
            nth = int(np.count_nonzero(drawn_rows)) // enough
            marks[mark] = every_nth(drawn_rows, nth) if nth > 1 else np.flatnonzero(drawn_rows)
        times = times._replace(points=doc.Points(rows.number, rows.time_s, marks, LEGEND))
    speed = (*more["speed"], *found["speed"], charts["throughput"])
    known = (doc.Bullets(tuple(found["noticed"])), charts["changes"], charts["parts"])
    warned = doc.Bullets(tuple(found["warned"]))
    parts = sections(
        doc.Section("time", Message("Where the time went"), (spent,)),
        doc.Section("parts", Message("What each part costs"), tuple(_normal(a)), folded=True),
        doc.Section("changes", Message("What to change"), more["changes"], changes),
        doc.Section("noticed", Message("What was noticed"), (warned, fine)),
        doc.Section("ranks", Message("The ranks side by side"), (*found["ranks"], *more["ranks"])),
        doc.Section("machine", Message("What the machine did"), more["machine"]),
        doc.Section("times", Message("Every iteration"), (times,)),
        doc.Section(
            "slow", Message("Which iterations are slow, and why"), (*found["slow"], *more["slow"]), folded=True
        ),
        doc.Section("first", Message("Why the first one takes longer"), tuple(found["first"]), folded=True),
        doc.Section("speed", Message("How fast it really is"), speed, folded=True),
        doc.Section("forecast", Message("How long it will take"), more["forecast"], folded=True),
        doc.Section("more", Message("What else is known"), known, folded=True),
        doc.Section("settings", Message("Settings"), more["settings"], folded=True),
    )
    return tuple(lead), parts


def _below_the_screen(run: RunReport, charts: dict[str, doc.Chart], *, full: bool) -> dict[str, tuple[doc.Block, ...]]:
    """Blocks for which the first screen has no room, by section."""
    a = run.analysis
    rows, left_out = sentences.slow_rows(a, 30 if full else 12)  # rows
    head = (Message("Iteration"), Message("Time"), Message("What it includes"))
    marks = tuple(mark for row in rows for mark, phases in sentences.MARKS.items() if a.phases.phase[row] in phases)
    table = doc.Table(head, "rrl", tuple(sentences.slow_row(a, row) for row in rows), marks=marks)
    others = (Message("… and {count:n} more.", {"count": left_out}),) if left_out else ()
    unchanged = run.verdict.status is Status.HEALTHY and (run.advice is None or not run.advice.advice)
    ahead = doc.Text((sentences.forecast(a), *sentences.forecast_notes(a)))
    return {
        "changes": (doc.Text(advice_answer.nothing(run.advice)),) if unchanged else (),
        "ranks": (_ranks(a),) if a.ranks is not None else (),
        "machine": (charts["machine"],) if a.machine is not None else (),
        "slow": (table, doc.Text(others), charts["anatomy"]) if rows else (),
        "speed": (doc.Text(sentences.speed(a)),),
        "forecast": (ahead, charts["forecast"]),
        "settings": (_settings(a),) if full else (),
    }


# --- parts of a run ---------------------------------------------------------------------------------------------


def _normal(a: Analysis) -> Iterator[doc.Block]:
    if len(a.regimes.regimes) > 1:
        levels = (
            Message(
                "Iterations {begin:n} to {end:n}: {step:time}",
                {"begin": regime.from_iteration, "end": regime.to_iteration, "step": regime.step_s},
            )
            for regime in a.regimes.regimes
        )
        yield doc.Bullets(texts(levels))
    found = sentences.part_rows(a)
    rows = (
        (PART_NAMES[row.part], row.cost, row.how, count(row.count) if row.count else None, share_text(row.share))
        for row in found
    )
    head = (Message("Part"), Message("Cost"), Message("Basis"), Message("Count"), Message("Share"))
    marks = tuple(sentences.PART_MARKS[row.part] for row in found)
    yield doc.Table(head, "lrdrr", tuple(rows), doc.Priority.ALWAYS, marks=marks)
    if any(row.part == "data" for row in found):
        yield doc.Text((Message("The cost of a step includes what it waits for its data; its share does not."),))
    if a.costs.pair_s is not None and sentences.separable(a):
        pair = {"pair": a.costs.pair_s}
        yield doc.Text((Message("Evaluation and checkpoint together: {pair:range}, measured.", pair),))


def _ranks(a: Analysis) -> doc.Table:
    """One row per rank: its own time per step, how long it waited for others, and how often it was the slowest."""
    assert a.ranks is not None
    rows = (
        (
            count(row.rank),
            time(row.own_s) if row.own_s is not None else UNKNOWN,
            time(row.wait_s) if row.wait_s is not None else UNKNOWN,
            Message("{share:pct}", {"share": row.slowest}),
        )
        for row in a.ranks.rows[:64]  # rows of the table
    )
    head = (Message("Rank"), Message("Own time of a step"), Message("Waited"), Message("Steps as the slowest"))
    return doc.Table(head, "rrrr", tuple(rows))


def _findings(report: Report, run: RunReport) -> dict[str, list[doc.Text]]:
    """Findings by section, warnings first, then notices; those that matter most have a priority."""
    a = run.analysis
    ranked = [
        finding
        for finding in sorted((*report.remarks, *a.findings), key=lambda finding: _RANK.get(finding.severity, 3))
        if finding.message != run.verdict.text
        and (finding.code not in _SAID_FIRST or finding.code not in run.verdict.because)
    ]
    said = _SAID_ABOVE | ({"mfu_other_card"} if a.throughput.mfu is not None else set())  # said with the MFU itself
    warnings = [finding for finding in ranked if finding.code not in said and finding.severity == WARNING]
    others = [finding for finding in ranked if finding.code not in said and finding.severity != WARNING]
    # Stalls of less than half a per cent of the time are not important enough for the first screen.
    cheap = {"stall", "periodic_slowness"} if sentences.share_of(a, "stall") < 0.005 else set()
    others.sort(key=lambda finding: finding.code in cheap or finding.severity != NOTICE)
    changes = run.advice is not None and any(advice.remedy for advice in run.advice.advice)
    spare = 4 - len(warnings) - changes - bool(others)  # findings on the first screen
    priorities: dict[int, int] = {id(finding): doc.Priority.ALWAYS for finding in warnings}
    priorities |= {id(finding): doc.Priority.REMARK for finding in others[:1] if finding.severity == NOTICE}
    priorities |= {
        id(finding): doc.Priority.MORE + place for place, finding in enumerate(others[1 : max(spare, 1) + 1])
    }
    # Whoever states a price wants to know the cost.
    priorities |= {id(finding): doc.Priority.PRESSING for finding in others if finding.code == "cost"}
    slow = a.costs.step_known and (a.phases.phase != Phase.STEP).any()
    absent = {"slow": not slow, "ranks": a.ranks is None}  # missing sections
    texts: dict[str, list[doc.Text]] = defaultdict(list)
    for finding in ranked:
        place = _PLACES.get(finding.code)
        if place is None or absent.get(place):
            place = "noticed" if finding.severity == INFO else "warned"
        if finding.code != "several_runs" or report.count == 1:
            text = doc.Text((finding.message,), finding.severity, priority=priorities.get(id(finding)))
            texts[place].append(text)
    return texts


def _settings(a: Analysis) -> doc.Table:
    """The settings, except any that may name a person or a place."""
    rows: list[tuple[Message, Message, Message]] = []
    if len(a.run.iterations):
        first = {"line": int(a.run.iterations.line.min()) + 1}
        shown = Message("shown by its lines, the first of them line {line:n}", first)
        rows.append((word("format"), word(a.run.format), shown))
    from stepwatch.presenters import plan_sentences, run_json  # only the full answer shows them

    named = {origin.value: text for origin, text in plan_sentences.ORIGINS.items()}
    inferred = Message("inferred from the log")
    named |= {"default": Message("default of the format"), "inferred": inferred}
    values, origins = run_json.settings_json(a)
    for name, value in values.items():
        if value is not None:
            text = f"{value:.9g}" if isinstance(value, float) else clean(value)
            rows.append((word(name), word(text), named.get(origins.get(name, ""), inferred)))
    return doc.Table((Message("Setting"), Message("Value"), Message("Origin")), "lld", tuple(rows))


def _unread(analyses: Iterable[Analysis]) -> tuple[doc.Section, ...]:
    """Lines that no pattern matched, counted from 1; shown only on request."""
    unread = (line for a in analyses for line in sorted((*a.run.unread, *a.run.outside)))
    lines = [(line.line + 1, clean(line.text)) for line in islice(unread, 20)]
    found: doc.Block = doc.Quoted(tuple(lines)) if lines else doc.Text((Message("None."),))
    return (doc.Section("unread", Message("Lines that were not understood"), (found,), asked=True),)


# --- how lines like the example were read -----------------------------------------------------------------------


_TIMES = {
    "step": Message("{time:time} for one iteration"),
    "interval": Message("{time:time} for all iterations since the line before"),
    "elapsed": Message("{time:time} since the start"),
    "mean": Message("{time:time} per iteration, the mean since the start"),
    "clock": Message("its time by the timestamps of the lines"),
}
_OF_EPOCHS = {
    "step": Message("{time:time} for one epoch"),
    "interval": Message("{time:time} for all epochs since the line before"),
    "mean": Message("{time:time} per epoch, the mean since the start"),
}


def understood_blocks(understood: Understood) -> tuple[doc.Block, ...]:
    """Some lines, and what was read from each."""
    said = []
    for line in understood.lines:
        quote = line.text if len(line.text) <= 100 else line.text[:99] + "…"  # about a line of a terminal
        facts: dict[str, object] = {"line": line.line + 1, "quote": quote}
        number = Message("iteration {number:n}", {"number": line.number})
        if understood.counts_epochs:
            number = Message("epoch {number:n}", {"number": line.number})
        facts |= {"number": number, "time": _time(understood, line)}
        if line.loss is None:
            said.append(Message("Line {line:n}, “{quote:quote}”, is read as {number:word}, {time:word}.", facts))
        else:
            facts["loss"] = line.loss
            said.append(
                Message(
                    "Line {line:n}, “{quote:quote}”, is read as {number:word}, loss {loss:figure}, {time:word}.", facts
                )
            )
    if understood.unit and understood.word:
        names = {"word": understood.word, "unit": understood.unit}
        said.append(Message("The time is the figure after “{word:word}”, in {unit:word}.", names))
    return texts(said, "aside", doc.Priority.ALWAYS)


def _time(understood: Understood, line: ReadLine) -> Message:
    of_epochs = _OF_EPOCHS if understood.counts_epochs else {}
    if line.time_s is None and understood.meaning != "clock":
        return Message("no time")
    return of_epochs.get(understood.meaning, _TIMES[understood.meaning])._replace(params={"time": line.time_s})


# --- the command to ask next ------------------------------------------------------------------------------------


_OF_EXPLAIN_ALONE = ("--like", "--log-format", "--max-size")


def next_commands(report: Report, run: RunReport, *, full: bool, typed: Typed | None = None) -> Iterator[doc.Command]:
    """The one command that would add most to the answer; nothing if there is nothing left to ask."""
    a = run.analysis
    command, options = ("stepwatch explain", typed.options) if typed else (report.command, tuple(user_options(a)))
    sources = [run.analysis.run.source for run in report.runs]
    names = typed.logs if typed else report.inputs or tuple(dict.fromkeys(source or "-" for source in sources))
    start = (command, *map(quoted_path, names), *options)
    if report.directory and not full:
        why = Message("To see it explained:") if report.count == 1 else Message("To see one of them:")
        yield doc.Command((*start, f"--run {report.worst_first[0] + 1}"), why)
    elif len(sources) > 1 and not full:
        other = 0 if report.longest else 1
        found = [name for name in names if os.path.basename(name) == sources[other]]
        alone = len(found) == 1 and len(names) == report.count  # each log holds one run
        asked = (command, quoted_path(found[0]), *options) if alone else (*start, f"--run {other + 1}")
        yield doc.Command(asked, Message("To see another run:"))
    elif a.throughput.gpu is None and a.throughput.achieved_flops is not None:
        why = Message("To see how much of your card is used, name it, for example:")
        peaks = {"4070": 58e12, "4090": 165e12, "h100": 989e12}  # the example must be fast enough for the log
        card = next((name for name, peak in peaks.items() if a.throughput.achieved_flops < peak), "b200")
        if (a.run.settings.text("device") or "").startswith("cpu"):
            card = "cpu"
        yield doc.Command((*start, f"--gpu {card}"), why)
    elif a.forecast.max_iters is None and a.costs.step_known:
        why = Message("To see when the run ends, give its length, for example:")
        length = max(int(float(f"{2 * a.forecast.last_iteration:.0e}")), 1000)  # one digit: it is an example
        yield doc.Command((*start, f"--set max_iters={length}"), why)
    elif not full:
        yield doc.Command((*start, "--full"), Message("To see everything:"))
    elif run.advice is not None and not any(option in " ".join((command, *options)) for option in _OF_EXPLAIN_ALONE):
        why = Message("To see what to change, with the lines to paste:")
        yield doc.Command((command.replace("explain", "advise", 1), *start[1:]), why)


def user_options(a: Analysis) -> Iterator[str]:
    """The options that the user gave, so that the next command keeps them."""
    if a.throughput.gpu is not None and a.throughput.gpu_origin == Origin.USER.value:
        yield f"--gpu {quoted(a.throughput.gpu.name)}"
    for name, setting in a.run.settings.items():
        if setting.origin is Origin.USER:
            value = setting.value
            whole = isinstance(value, float) and value == int(value)
            yield f"--set {quoted(f'{name}={int(value) if whole else value}')}"
