"""The queries on a store, through DuckDB: all answers in one value."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import duckdb

from stepwatch.errors import InputError, UsageError
from stepwatch.fleet import jobs, likes
from stepwatch.fleet.schema import TABLES, TIME, from_json
from stepwatch.fleet.store import Store
from stepwatch.fleet_report import Cause, Change, FleetReport, ForecastAccuracy, Group, Job, Scale, Share, Speed
from stepwatch.messages import Message
from stepwatch.patterns import Pattern
from stepwatch.units import DAY_S, HOUR_S, Interval
from stepwatch.verdict import Status

GROUPS = {"card": "gpu"}
"""Common names of columns."""
HOUR_PARTS = ("step", "data", "eval", "checkpoint", "compile", "start", "stall", "unexplained")
_WEEK = "strftime(date_trunc('week', started_at), '%Y-%m-%d')"
_SINCE = Pattern(r"(\d+(?:\.\d+)?)\s*([hdw])")
_UNITS_S = {"h": HOUR_S, "d": DAY_S, "w": 7 * DAY_S}
_HOURS = f"coalesce(wall_s, 0) * coalesce(world_size, 1) / {HOUR_S}"


@dataclass(frozen=True, kw_only=True)
class FleetRequest:
    store: str
    where: str | None = None
    since: str | None = None
    by: tuple[str, ...] = ()


def ask(request: FleetRequest) -> FleetReport:
    """Raises InputError if there is no store or no run in it, UsageError if a restriction is not valid."""
    with restricted(request) as database:
        (runs, logs, hours, first, last), *_ = database.sql(
            f"select count(*), count(distinct log), coalesce(sum({_HOURS}), 0), min(epoch(started_at)),"
            " max(epoch(ended_at)) from runs"
        ).fetchall()
        if not runs:
            raise InputError(
                Message("no run in the store fits"), Message("leave --where or --since out to see how many there are")
            )
        columns = tuple(dict.fromkeys((*jobs.COLUMNS, *likes.COLUMNS)))
        kinds = {column.name: column.kind for column in TABLES["runs"]}
        asked = (f"epoch({name}) as {name}" if kinds[name] == TIME else name for name in columns)
        answer = database.sql(f"select {', '.join(asked)} from runs")
        rows = [dict(zip(columns, row, strict=True)) for row in answer.fetchall()]
        found = jobs.find_jobs(rows)
        restarted = [job for job in found if job.starts > 1]
        restarted.sort(key=lambda job: -(job.redone_s + (job.gap_s or 0.0)) * job.cards)
        by = tuple(GROUPS.get(name, name) for name in request.by)
        return FleetReport(
            runs=runs,
            logs=logs,
            hours=hours,
            asked={name: value for name in ("where", "since") if (value := getattr(request, name)) is not None},
            by=request.by,
            shares=tuple(_shares(database, restarted)),
            statuses=dict(database.sql("select verdict, count(*) from runs group by 1 order by 2 desc, 1").fetchall()),
            groups=tuple(_groups(database, by)) if by else (),
            weeks=tuple(_groups(database, (_WEEK,)))[:26] if first is not None else (),  # half a year
            jobs=tuple(restarted),
            job_count=len(found),
            suspects=tuple(likes.find_suspects(rows)),
            scaling=tuple(_scaling(database)),
            speeds=tuple(_speeds(database)),
            causes=tuple(_causes(database)),
            changes=tuple(_changes(database)),
            held=_held(database),
            first_s=first,
            last_s=last,
        )


def restricted(request: FleetRequest) -> duckdb.DuckDBPyConnection:
    """The tables in memory, restricted as requested; queries cannot reach anything outside."""
    database = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    database.sql("set TimeZone = 'UTC'")
    database.sql("set enable_progress_bar = false")
    store = Store(request.store)
    for table in TABLES:
        if table in ("iterations", "parts", "findings", "restarts"):
            continue
        database.register("stored", store.table(table))
        database.sql(f"create table all_{table} as select * from stored")
        database.unregister("stored")
    database.sql("set enable_external_access = false")
    database.sql("set lock_configuration = true")
    database.sql("create table runs as select * from all_runs")
    if request.since is not None:
        match = _SINCE.fullmatch(request.since.strip())
        try:
            if match is not None:  # 30d
                begin_s = time.time() - float(match[1]) * _UNITS_S[match[2]]
            else:  # 2026-11-01
                begin_s = datetime.fromisoformat(request.since).replace(tzinfo=UTC).timestamp()
        except ValueError as error:
            raise UsageError(
                Message("--since “{text:word}” is no time", {"text": request.since}),
                Message("for example: --since 30d, or 2026-11-01"),
            ) from error
        database.execute("delete from runs where started_at is null or epoch(started_at) < ?", [begin_s])
    if request.where is not None:
        try:
            database.sql(f"delete from runs where not coalesce(({request.where}), false)")
        except duckdb.Error as error:
            reason = {"text": request.where, "reason": str(error).splitlines()[0]}
            example = {"example": "--where \"gpu like '%4090%' and world_size = 8\""}
            raise UsageError(
                Message("--where “{text:word}” cannot be asked: {reason:word}", reason),
                Message("it is a condition in SQL on the columns of `runs`: {example:list}", example),
            ) from error
    for name in request.by:
        if GROUPS.get(name, name) not in {column.name for column in TABLES["runs"]}:
            raise UsageError(
                Message("--by “{name:word}” is no column", {"name": name}),
                Message("for example: --by card,project,node"),
            )
    database.sql("create table advice as select a.* from all_advice a semi join runs using (source, run_index)")
    database.sql("create view failures as select * from all_failures")
    return database


# --- where the hours went ---------------------------------------------------------------------------------------


def _shares(database: duckdb.DuckDBPyConnection, restarted: Sequence[Job]) -> list[Share]:
    sums = ", ".join(f"coalesce(sum(parts_{part}_s * coalesce(world_size, 1)) / {HOUR_S}, 0)" for part in HOUR_PARTS)
    (spent_on, *_) = database.sql(f"select {sums} from runs").fetchall()
    hours = dict(zip(HOUR_PARTS, spent_on, strict=True))
    hours["redone"] = min(sum(job.redone_s * job.cards for job in restarted) / HOUR_S, hours["step"])
    hours["step"] -= hours["redone"]
    hours["restart"] = sum((job.gap_s or 0.0) * job.cards for job in restarted) / HOUR_S
    whole = sum(hours.values())
    shares = [Share(part, spent, spent / whole if whole else 0.0) for part, spent in hours.items() if spent > 0]
    return sorted(shares, key=lambda share: (share.part != "step", -share.hours))


def _groups(database: duckdb.DuckDBPyConnection, by: Sequence[str]) -> list[Group]:
    width = len(by)
    names = ", ".join(f"coalesce(cast({name} as varchar), '')" for name in by)
    order = "1 desc" if by == (_WEEK,) else "hours desc"
    places = ", ".join(str(place) for place in range(1, width + 1))
    healthy = ", ".join(f"'{status.value}'" for status in (Status.HEALTHY, Status.BEGUN, Status.UNKNOWN))
    query = f"""
        select {names}, count(*), sum({_HOURS}) as hours,
            sum(parts_step_s * coalesce(world_size, 1)) / nullif(sum(wall_s * coalesce(world_size, 1)), 0), median(mfu),
            count(*) filter (verdict not in ({healthy}))
        from runs group by {places} order by {order}, {places}"""
    return [Group(tuple(row[:width]), *row[width:]) for row in database.sql(query).fetchall()]


# --- speed ------------------------------------------------------------------------------------------------------


def _scaling(database: duckdb.DuckDBPyConnection) -> list[Scale]:
    """Compares the same model on the same card with different numbers of cards."""
    query = """
        with alike as (
            select concat_ws('/', format, n_layer, n_head, n_embd, block_size, cast(n_params as bigint)) as work, gpu,
                coalesce(world_size, 1) as cards, tokens_per_s / coalesce(world_size, 1) as rate from runs
            where tokens_per_s is not null and gpu is not null and coalesce(n_params, n_layer) is not null),
        sizes as (select work, gpu, cards, count(*) as runs, median(rate) as rate from alike group by all),
        least as (select work, gpu, arg_min(rate, cards) as alone, count(*) as kinds from sizes group by work, gpu)
        select work, gpu, cards, runs, rate, rate / alone from sizes join least using (work, gpu) where kinds > 1
        order by work, gpu, cards"""
    return [Scale(*row) for row in database.sql(query).fetchall()]


def _speeds(database: duckdb.DuckDBPyConnection) -> list[Speed]:
    query = f"""
        select gpu, count(*), sum({_HOURS}) as hours, median(mfu),
            median(mfu * step_s_mid / nullif(expected_step_s_mid, 0)) filter (expected_step_s_mid is not null)
        from runs where gpu is not null and mfu between 0 and 1 group by gpu order by hours desc, gpu"""
    return [Speed(*row) for row in database.sql(query).fetchall()]


# --- what failed, what to change, what was said ----------------------------------------------------------------


def _causes(database: duckdb.DuckDBPyConnection) -> list[Cause]:
    query = f"""
        select fault, count(*) as often, sum({_HOURS}), min(source), true from runs
        where fault is not null group by fault
        union all
        select cause, count(*), 0.0, min(log), false from failures group by cause
        order by 5 desc, often desc, 1"""
    return [Cause(*row) for row in database.sql(query).fetchall()]


def _changes(database: duckdb.DuckDBPyConnection) -> list[Change]:
    # A rule states the saving of the whole run: only the part that the log covers is counted here.
    covered = f"least(coalesce(wall_s / nullif(total_s_mid, 0), 1), 1) * coalesce(world_size, 1) / {HOUR_S}"
    sums = ", ".join(f"sum(a.saves_s_{end} * {covered})" for end in ("low", "mid", "high"))
    query = f"""
        select rule, arg_max(said, a.saves_s_mid), arg_max(text, a.saves_s_mid), count(*), {sums}
        from advice a join runs using (source, run_index)
        group by rule order by 6 desc, rule limit 3"""
    found = []
    for rule, said, text, runs, low, mid, high in database.sql(query).fetchall():
        message = Message("{text:list}", {"text": text}) if said is None else from_json(json.loads(said))
        found.append(Change(rule, message, runs, Interval(low, mid, high)))
    return found


def _held(database: duckdb.DuckDBPyConnection) -> ForecastAccuracy | None:
    query = """
        select count(*), avg((early_true_s between early_total_s_low and early_total_s_high)::int),
            median(abs(early_total_s_mid / early_true_s - 1))
        from runs where early_total_s_mid is not null and early_true_s > 0"""
    (count, inside, error), *_ = database.sql(query).fetchall()
    return ForecastAccuracy(count, inside, error) if count else None
