"""dlio-hpc history: list earlier jobs."""

import calendar
import re
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import counted
from dlio_hpc.batch.schedulers.scheduler import ENDED
from dlio_hpc.cli import console
from dlio_hpc.cli.archive_options import archive_options
from dlio_hpc.cli.outputs import OUTPUT, Outputs, page_options, written
from dlio_hpc.cli.verbs import PAGER, SETTINGS, argument, option, parsed
from dlio_hpc.results import metrics
from dlio_hpc.results.metrics import METRICS, MetricName

if TYPE_CHECKING:
    from dlio_hpc.reports.page import Page
    from dlio_hpc.verdict.history_entry import Entry


# Maximum number of workloads and of sites that a message names.
_MOST_NAMED = 8
# Number of jobs that are listed on a terminal by default.
_LISTED = 30


def _day(text: str) -> str:
    """Return `text`, a date or a time (UTC), in the format that the history uses for times. Raise ValueError if `text`
    is neither a date nor a time.
    """
    from datetime import datetime

    try:
        datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as fault:
        if (month := re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])-\d\d", text)) is not None and month[1] != "0000":
            days = calendar.monthrange(int(month[1]), int(month[2]))[1]
            name = text[:7]
            raise ValueError(f"found {text!r}; use a day such as {name}-{days}: {name} has {days} days") from fault
        raise ValueError(f"found {text!r}; use a day such as 2026-11-21, or a time such as 2026-11-21T14:00") from fault
    return text.replace(" ", "T")


@click.command(context_settings=SETTINGS)
@argument("pattern", required=False, metavar="[JOB-PATTERN]")
@archive_options
@option("--site", is_common=False, metavar="NAME", help="Only jobs of this site.")
@option("--workload", metavar="NAME", help="Only jobs of this workload.")
@option("--nodes", type=int, metavar="N", help="Only jobs on this number of nodes.")
@option("--study", metavar="NAME", help="Only jobs of this study.")
@option(
    "--state",
    type=click.Choice(sorted(ENDED)),
    metavar="STATE",
    help="Only jobs that ended in this state, such as completed or failed.",
)
@option("--since", callback=parsed(_day), metavar="DAY", help="Only jobs that ended on this day (UTC) or later.")
@option("--until", callback=parsed(_day), metavar="DAY", help="Only jobs that ended on this day (UTC) or before.")
@option(
    "--metric", type=click.Choice(list(METRICS)), metavar="NAME",
    help=(f"Metric to list: {', '.join(METRICS)}. Default: samples_per_s, or the checkpoint rate if no job "
        "has samples/s."),
)  # fmt: skip
@option(
    "--last", type=click.IntRange(min=1), metavar="N",
    help="Only the newest N jobs. Changes are still computed from all jobs. Default: 30 on a terminal, otherwise all.",
)  # fmt: skip
@PAGER
@page_options
@option("--csv", "as_csv", is_flag=True, help="Print all runs with all their metrics as CSV.")
@option(
    "--openmetrics",
    type=OUTPUT,
    metavar="FILE",
    help="Write the newest job of each measurement for Prometheus's node exporter; -: stdout.",
)
@option("--influx", type=OUTPUT, metavar="FILE", help="Write all jobs in InfluxDB's line protocol; -: stdout.")
@option(
    "--xdmod",
    type=OUTPUT,
    metavar="FILE",
    help="Write the newest job for XDMoD, as lines of name and value; -: stdout.",
)
@option(
    "--export",
    "is_export",
    is_flag=True,
    help="Print the whole history as JSON lines; equal histories give equal bytes.",
)
@option(
    "--rebuild",
    "is_rebuild",
    is_flag=True,
    help="Rebuild the history from the archives and the decisions on baselines alone.",
)
def history(
    pattern: str | None, archive: Path | None, runs: Path, metric: MetricName | None, last: int | None,
    has_pager: bool, outputs: Outputs, openmetrics: Path | None, influx: Path | None, xdmod: Path | None,
    is_export: bool, is_rebuild: bool, **wanted: Any,
) -> int:  # fmt: skip
    """List earlier jobs. Jobs with the same key form a block, the newest job last. A line shows the median of a metric
    and its change from the baseline or, without a baseline, from the previous job. Steps and drifts of the metric are
    shown below the lines.

    --html writes the dashboard of the facility: all suites and workloads, with the verdicts on their newest jobs. If a
    pattern, --metric, or a filter other than --site and --since is given, --html writes the listed jobs instead.

    JOB-PATTERN is the name of a job; * and ? in it match as in a shell. For the key, see dlio-hpc baseline --help.
    """
    from dlio_hpc.verdict import history as histories
    from dlio_hpc.verdict import judged_jobs
    from dlio_hpc.verdict.history import Where

    _check_days(wanted["since"], wanted["until"])
    monitored = {name: path for name, path in
                 (("openmetrics", openmetrics), ("influx", influx), ("xdmod", xdmod)) if path is not None}  # fmt: skip
    on_stdout = sum(str(path) == "-" for path in monitored.values())
    if outputs.as_json + outputs.as_csv + is_export + on_stdout > 1:
        raise click.UsageError("only one of --json, --csv, --export and files named - can be printed")
    folder = judged_jobs.folder(archive, runs)
    if is_rebuild:
        _rebuild(folder)
    else:
        judged_jobs.refresh(folder, console.say)
    if is_export:
        sys.stdout.buffer.write(histories.export(folder))
        return 0
    entries = histories.entries(folder, Where(pattern, **wanted))
    if not entries and not outputs.as_json:
        _say_empty(pattern, wanted, folder, outputs)  # before the header of the CSV
    _print_data(_newest(entries, last), outputs)
    if not entries:
        if outputs.as_json:
            _say_empty(pattern, wanted, folder, outputs)
        return 0
    for name, path in monitored.items():
        _monitor(name, path, entries, folder)
    if not monitored or outputs.has_files:
        is_whole = pattern is None and metric is None and not {*_chosen(wanted)} - {"site", "since"}
        if outputs.html is not None and is_whole:
            limits = [f"{name} {wanted[name]}" for name in _chosen(wanted)]
            outputs.write_page(_dashboard(entries, folder, limits, outputs.html))
            outputs = outputs._replace(html=None)
        now = units.utc_now() if pattern is None and not {*_chosen(wanted)} - {"site", "since"} else None
        listed = last or (_LISTED if console.is_terminal() and not outputs.has_files else None)
        outputs.present(lambda: _page(entries, folder, metric or _usual(entries), now, listed), has_pager)
    return 0


def _print_data(entries: "Sequence[Entry]", outputs: Outputs) -> None:
    """Print the entries as JSON or CSV, if the user asks for it."""
    if outputs.as_json:
        from dlio_hpc.documents.judgements import HistoryDocument

        console.print_json(HistoryDocument(list(entries)))
    elif outputs.as_csv:
        from dlio_hpc.reports import history_rows

        history_rows.write_csv(entries, sys.stdout)


def _newest(entries: "Sequence[Entry]", last: int | None) -> "Sequence[Entry]":
    return entries if last is None else entries[-last:]


def _say_empty(pattern: str | None, wanted: dict[str, Any], folder: Path, outputs: Outputs) -> None:
    """Say that the history has no jobs. If it has jobs, but no job matches pattern and filters, raise ConfigError."""
    from dlio_hpc.verdict import history as histories

    drawn = "; no page or picture is written" if outputs.has_files else ""
    entries = histories.entries(folder, histories.EVERYTHING)
    if not entries:
        console.say(f"the history of {folder} has no jobs{drawn}")
        return
    filters = [*([repr(pattern)] if pattern is not None else []),
               *(f"--{name.replace('_', '-')} {wanted[name]}" for name in _chosen(wanted))]  # fmt: skip
    parts = {
        "workloads": {one.key.workload for entry in entries for one in entry.measurements},
        "sites": {entry.site for entry in entries},
    }
    there = "; ".join(f"{kind} {', '.join(sorted(names)[:_MOST_NAMED])}" for kind, names in parts.items())
    days = sorted(entry.ended[:10] for entry in entries if entry.ended)
    span = f"; from {days[0]} to {days[-1]}" if days else ""
    meant, jobs = f"{pattern}-*", [entry.job for entry in entries]
    is_begun = pattern is not None and not any(fnmatch(job, pattern) for job in jobs)
    hint = f"did you mean {meant!r}? " if is_begun and any(fnmatch(job, meant) for job in jobs) else ""
    raise ConfigError(f"no job of {folder} matches {', '.join(filters)}; {hint}it has {counted(len(entries), 'job')}, "
    "such as "
                      f"{entries[-1].job}; {there}{span}{drawn}")  # fmt: skip


def _check_days(since: str | None, until: str | None) -> None:
    if since is not None and until is not None and since[:10] > until[:10]:
        raise click.UsageError(f"--since {since} is later than --until {until}, so no job can match; exchange the days")


def _chosen(wanted: dict[str, Any]) -> list[str]:
    return [name for name, value in wanted.items() if value is not None]


def _monitor(name: str, path: Path, entries: "Sequence[Entry]", folder: Path) -> None:
    """Write the medians of the jobs in the text format of a monitoring system. The file is written atomically."""
    from dlio_hpc.files import atomic_file
    from dlio_hpc.reports import monitoring
    from dlio_hpc.verdict import baselines

    measured = monitoring.medians(entries, baselines.active_in(folder, console.say))
    if not measured:
        console.say(f"the jobs have no measurements; {path} is not written")
        return
    text = {"openmetrics": monitoring.openmetrics, "influx": monitoring.influx, "xdmod": monitoring.xdmod}[name](
        measured
    )
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    if not (folder := path.parent).is_dir():
        raise ConfigError(f"{path}: the folder {folder} does not exist; create it (mkdir -p), or give another file")
    with written(path, is_marked=True):
        atomic_file.write(path, text)
    console.say(f"wrote {path}")


def _rebuild(folder: Path) -> None:
    from dlio_hpc.verdict import history as histories

    histories.check_writable(folder)
    taken = histories.rebuild(folder, console.say)
    for note in taken.notes:
        console.say(f"note: {note}")
    console.say(f"history rebuilt from {counted(len(taken.jobs), 'archive')} in {folder}")


def _usual(entries: "Sequence[Entry]") -> MetricName:
    """Return the metric that is shown by default."""
    return metrics.main({name for entry in entries for run in entry.measurements for name in run.metrics})


def _page(entries: "Sequence[Entry]", folder: Path, metric: MetricName, now: str | None, last: int | None) -> "Page":
    from dlio_hpc.reports import history_page, history_rows
    from dlio_hpc.verdict import baselines
    from dlio_hpc.verdict.history_entry import together

    blocks = history_rows.blocks(entries, baselines.active_in(folder, console.say), metric, last)
    return history_page.of_history(blocks, metric, str(folder), now, len(together(entries)))


def _dashboard(entries: "Sequence[Entry]", folder: Path, limits: Sequence[str], page: Path) -> "Page":
    """Return the dashboard of the listed jobs. limits: the filters in words; empty if all jobs are listed. page: path
    of the dashboard. If the folder of `page` also has the pages of a site, the dashboard links them.
    """
    from dlio_hpc.base import units
    from dlio_hpc.reports import dashboard, web_site
    from dlio_hpc.verdict import history as histories
    from dlio_hpc.verdict import newest_jobs

    source = ", ".join([str(folder), *limits])
    rows = newest_jobs.of(folder, entries, histories.entries(folder) if limits else entries)
    address = web_site.addresses(page.parent)
    return dashboard.of_facility(dashboard.Facility(source, units.utc_now(), rows, len(entries), address))
