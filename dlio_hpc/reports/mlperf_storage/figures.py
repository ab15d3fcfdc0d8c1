"""The content of summary.json, as dlio_benchmark names and scales the figures of a run."""

import statistics
from collections.abc import Iterator
from typing import Any

from dlio_hpc.reports.mlperf_storage.selection import ReportedRun
from dlio_hpc.results.run_result import Epoch, Summary

# dlio_benchmark divides by 1024 x 1024 x 1024 and calls the result GB; the same holds for MB.
_GIB, _MIB = 1 << 30, 1 << 20
_MB = 1e6

# How figures are made whose definition in dlio-hpc is not that of dlio_benchmark.
DEFINITIONS = (
    "train_au_percentage: computation / (wait + computation + synchronisation) of each epoch, with its first step; "
    "dlio_benchmark leaves the first step out",
    "train_au_mean_percentage, train_au_meet_expectation: AU by MLPerf's formula over all epochs, without the first "
    "step of each (summary.au_mlperf of result.json)",
    "train_throughput_samples_per_second: samples / time of each epoch, with its first step",
    "train_throughput_mean_samples_per_second, train_io_mean_MB_per_second: summary.samples_per_s and "
    "summary.read_MBps; MB = 1024 x 1024 bytes, as in dlio_benchmark",
    "save_checkpoint_*: bytes written / time in write and fsync of the slowest rank; GB = 1024 x 1024 x 1024 bytes, as "
    "in dlio_benchmark",
    "load_checkpoint_*: bytes read / time in open and read of the slowest rank",
    "host_memory_GB: memory that the job may use on each node, which a control group may limit",
)


def summary(run: ReportedRun) -> dict[str, Any]:
    """Return the content of summary.json. Unknown values are None."""
    result = run.result
    memory, cores = _of_nodes(run, "memory_bytes"), _of_nodes(run, "cores")
    share = result.dataset.bytes / result.nodes
    content: dict[str, Any] = {
        "start": _moment(result.started),
        "end": _moment(result.ended),
        "num_accelerators": result.ranks,
        "num_hosts": result.nodes,
        "hostname": result.hosts[0],
        "host_memory_GB": None if memory is None else [size / _GIB for size in memory],
        "host_cpu_count": cores,
        "metric": metric(run),
    }
    if run.model.family == "training":
        content |= {
            "num_files_train": result.dataset.files,
            "num_files_eval": 0 if run.run.run.evaluation is None else run.run.run.evaluation.workload.dataset.files,
            "num_samples_per_file": run.run.run.workload.dataset.samples_per_file,
            "data_size_per_host_GB": share / _GIB,
            "potential_caching": None if memory is None else [int(size > share) for size in memory],
            "epochs": len(result.epochs),
        }
    return content


def metric(run: ReportedRun) -> dict[str, Any]:
    """Return the section `metric` of summary.json."""
    made = run.result.summary
    if made is None:
        return {}
    figures = _training(made, run.result.epochs, run.au) if run.model.family == "training" else {}
    return {**figures, **_checkpoints(made)}


def missing(run: ReportedRun) -> Iterator[str]:
    """Yield the figures that the results of the run do not have."""
    made = run.result.summary
    if made is not None and run.model.family == "training" and made.au_mlperf is None:
        yield "summary.json: train_au_mean_percentage and train_au_meet_expectation are null: epochs have one step only"
    if made is not None and made.checkpoint is not None:
        yield "summary.json: standard deviations of checkpoint times; result.json has their distribution"
    if _of_nodes(run, "memory_bytes") is None:
        yield "summary.json: host_memory_GB is null: the job recorded no memory of its nodes"


def epoch_au(epoch: Epoch) -> float | None:
    """Return the AU of an epoch in percent, with its first step. Return None if it has neither computation nor wait."""
    busy = epoch.wait_s + epoch.compute_s + epoch.sync_s
    return 100 * epoch.compute_s / busy if busy else None


def epoch_rate(epoch: Epoch) -> float | None:
    """Return the samples per second of an epoch, of all ranks."""
    return epoch.samples / epoch.wall_s if epoch.wall_s else None


def _training(made: Summary, epochs: list[Epoch], required_au: float | None) -> dict[str, Any]:
    rates = [epoch_rate(epoch) for epoch in epochs]
    au = made.au_mlperf
    expectation = None if au is None or required_au is None else "success" if au >= required_au else "fail"
    known = [rate for rate in rates if rate is not None]
    return {
        "train_au_percentage": [epoch_au(epoch) for epoch in epochs],
        "train_au_mean_percentage": None if au is None else 100 * au,
        "train_au_meet_expectation": expectation,
        "train_throughput_samples_per_second": rates,
        "train_throughput_mean_samples_per_second": made.samples_per_s,
        "train_throughput_stdev_samples_per_second": statistics.pstdev(known) if known else None,
        "train_io_mean_MB_per_second": made.read_MBps * _MB / _MIB,
    }


def _checkpoints(made: Summary) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if (saved := made.checkpoint) is not None:
        figures |= {
            "checkpoint_size_GB": saved.bytes_written / saved.count / _GIB,
            "save_checkpoint_io_mean_GB_per_second": saved.write_MBps * _MB / _GIB,
            "save_checkpoint_duration_mean_seconds": None if saved.safe_s is None else saved.safe_s.mean,
        }
    if (loaded := made.restored) is not None:
        figures |= {
            "load_checkpoint_io_mean_GB_per_second": loaded.read_MBps * _MB / _GIB,
            "load_checkpoint_duration_mean_seconds": loaded.slowest_s.mean,
        }
    return figures


def _of_nodes(run: ReportedRun, key: str) -> list[int] | None:
    """Return a value of each node that environment.json records. Return None if it lacks a node of the run."""
    nodes = {node.get("host"): node.get(key) for node in run.outcome.environment.get("nodes", ())}
    values = [nodes.get(host) for host in run.result.hosts]
    return [int(value) for value in values if value is not None] if all(value is not None for value in values) else None


def _moment(text: str) -> str:
    """Return a time in UTC without its letter Z, as dlio_benchmark writes times."""
    return text.removesuffix("Z")
