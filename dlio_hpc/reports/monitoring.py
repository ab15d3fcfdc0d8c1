"""Medians of the history in the text formats of monitoring systems: Prometheus, InfluxDB and XDMoD.

Sources: OpenMetrics 1.0 (text format), InfluxDB's line protocol, and the parsers of XDMoD's application kernel remote
runner (AKRR), which read lines of the form "name: value unit" from the output of a job.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlio_hpc.base import units
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import run_groups
from dlio_hpc.verdict.baselines import Accepted
from dlio_hpc.verdict.history_entry import Entry, Key, together
from dlio_hpc.verdict.run_groups import Group

_PREFIX = "dlio_hpc_"
_XDMOD_UNITS = {"1/s": "Sample per Second", "MB/s": "MByte per Second", "s": "Second", "share": "", "x": "", "": ""}


class Gauge(NamedTuple):
    """A value that is exported. name: its name without the prefix; the name ends with the unit, as in Prometheus. help:
    sentence that describes the value.
    """

    name: str
    help: str


class JobMedians(NamedTuple):
    """The runs of a job that have one measurement key. value: values by gauge."""

    entry: Entry
    group: Group
    values: dict[Gauge, float]

    @property
    def labels(self) -> dict[str, str]:
        """Labels that distinguish the measurement from others, as text."""
        key = self.group.key
        return {
            "site": key.site, "workload": key.workload, "point": self.group.title, "file_system": key.file_system,
            "layout": key.layout, "nodes": str(key.nodes), "ranks_per_node": str(key.ranks_per_node),
            "settings": key.settings, "data": self.group.data, "outputs": key.outputs,
        }  # fmt: skip


ENDED = Gauge("job_ended_timestamp_seconds", "Time at which the newest job ended.")
EXIT_CODE = Gauge("job_exit_code", "Exit code for the fault of the newest job; 0: no fault.")
GOOD = Gauge("measured_runs", "Measured runs without a fault in the newest job.")
FAULTY = Gauge("faulty_runs", "Measured runs with a fault in the newest job.")
FROM_STORAGE = Gauge("from_storage", "1: all runs read from storage, or read nothing; 0: from memory, or unknown.")
BASELINE = Gauge("baseline_samples_per_second", "Median of samples/s of the active baseline.")


def medians(entries: Sequence[Entry], active: Sequence[Accepted]) -> list[JobMedians]:
    """Return the measurements of all jobs, oldest first. active: the active baselines."""
    ordered = sorted(together(entries), key=lambda entry: (entry.ended, entry.job))
    return [
        JobMedians(entry, group, _values(entry, group, active)) for entry in ordered for group in run_groups.of(entry)
    ]


def _values(entry: Entry, group: Group, active: Sequence[Accepted]) -> dict[Gauge, float]:
    values = {
        ENDED: units.timestamp(entry.ended), EXIT_CODE: float(entry.exit_code), GOOD: float(len(group.good)),
        FAULTY: float(len(group.measurements) - len(group.good)), FROM_STORAGE: float(group.is_of_storage),
    }  # fmt: skip
    baseline = next((accepted.group for accepted in active if accepted.group.key == group.key), None)
    if baseline is not None and (rates := baseline.values("samples_per_s")):
        values[BASELINE] = statistics.median(rates)
    for name in METRICS:
        if measured := group.values(name):
            values[gauge(name)] = statistics.median(measured) * (1e6 if METRICS[name].unit == "MB/s" else 1)
    return values


def gauge(metric: MetricName) -> Gauge:
    """Return the gauge of a metric, in the base units that Prometheus recommends."""
    ends = {"MB/s": ("_MBps", "_bytes_per_second"), "1/s": ("_per_s", "_per_second"), "s": ("_s", "_seconds"),
            "share": ("", "_ratio"), "x": ("", ""), "": ("", "")}  # fmt: skip
    old, new = ends[METRICS[metric].unit]
    return Gauge(f"{metric.removesuffix(old)}{new}", f"Median of the good runs: {METRICS[metric].noun}.")


def openmetrics(measured: Sequence[JobMedians]) -> str:
    """Return the newest job of each measurement as OpenMetrics text, which the textfile collector of Prometheus's node
    exporter also reads. measured: oldest first.
    """
    newest = {(job.group.key, job.group.title, job.group.data): job for job in measured}
    lines = []
    for known in dict.fromkeys(known for job in newest.values() for known in job.values):
        lines += [f"# TYPE {_PREFIX}{known.name} gauge", f"# HELP {_PREFIX}{known.name} {known.help}"]
        for job in newest.values():
            if known in job.values:
                labels = ",".join(f'{name}="{_quoted(value)}"' for name, value in job.labels.items())
                lines.append(f"{_PREFIX}{known.name}{{{labels}}} {job.values[known]!r}")
    return "\n".join([*lines, "# EOF"]) + "\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def influx(measured: Sequence[JobMedians]) -> str:
    """Return the points in InfluxDB's line protocol: for each measurement of each job, a point at the end time of the
    job.
    """
    return "".join(f"{line}\n" for line in map(_point, measured))


def _point(job: JobMedians) -> str:
    tags = "".join(f",{name}={_escaped(value)}" for name, value in job.labels.items() if value)
    fields = ",".join(f"{known.name}={value!r}" for known, value in job.values.items() if known != ENDED)
    name = job.entry.job.replace("\\", "\\\\").replace('"', '\\"')
    return f'dlio_hpc{tags} {fields},job="{name}" {int(job.values[ENDED]) * 10**9}'


def _escaped(text: str) -> str:
    """Return the value of a tag. A tag cannot end with a backslash, and cannot hold a newline."""
    plain = text.replace("\n", " ").rstrip("\\")
    return plain.replace(",", "\\,").replace("=", "\\=").replace(" ", "\\ ")


def xdmod(measured: Sequence[JobMedians]) -> str:
    """Return the newest job as lines "name: value unit". If the job has several measurements, each name begins with the
    name of its measurement.
    """
    last = measured[-1].entry
    groups = [job for job in measured if job.entry.job == last.job]
    version = last.versions.get("dlio_hpc", groups[-1].group.key.version)
    head = [
        f"App:Name: dlio-hpc\nApp:Version: {version}\nRunEnv:Nodes: {';'.join(last.hosts)}",
        f"Job: {last.job}\nExit Code: {last.exit_code}",
    ]
    return "\n".join([*head, *(line for job in groups for line in _statistics(job, len(groups) > 1))]) + "\n"


def _statistics(job: JobMedians, is_named: bool) -> Iterator[str]:
    prefix = f"{job.group.title or _title(job.group.key)}: " if is_named else ""
    yield f"{prefix}From Storage: {'yes' if job.group.is_of_storage else 'no'}"
    yield f"{prefix}Measured Runs: {len(job.group.good)}"
    for name, metric in METRICS.items():
        if measured := job.group.values(name):
            unit = _XDMOD_UNITS[metric.unit]
            yield f"{prefix}{metric.noun[0].upper()}{metric.noun[1:]}: {statistics.median(measured)!r} {unit}".rstrip()


def _title(key: Key) -> str:
    return f"{key.workload} {key.nodes}x{key.ranks_per_node}"
