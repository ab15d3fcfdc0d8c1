"""The content of summary.json: values of a run, with the names and units of dlio_benchmark."""

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
    "train_au_percentage: AU by MLPerf's formula of each epoch, without its first step (epochs[].au_mlperf of "
    "result.json); the computation is the requested one",
    "train_au_mean_percentage, train_au_meet_expectation: mean over the epochs; metric.au of config.yaml is the limit",
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
    """Yield sentences on the values of summary.json and *_output.json that cannot be computed from the results of the
    run.
    """
    made = run.result.summary
    if made is not None and run.model.family == "training" and _au(run.result.epochs) is None:
        yield (
            "summary.json, *_output.json: AU is null: epochs have only one step, or the run was made by an older "
            "dlio-hpc, which did not record AU"
        )
    if made is not None and made.checkpoint is not None:
        yield "summary.json: standard deviations of checkpoint times; result.json has their distribution"
    if _of_nodes(run, "memory_bytes") is None:
        yield "summary.json: host_memory_GB is null: the job recorded no memory of its nodes"


def epoch_au(epoch: Epoch) -> float | None:
    """Return the AU of an epoch in percent, by MLPerf's formula; None if unknown."""
    return None if epoch.au_mlperf is None else 100 * epoch.au_mlperf


def epoch_rate(epoch: Epoch) -> float | None:
    """Return the samples per second of an epoch, summed over all ranks."""
    return epoch.samples / epoch.wall_s if epoch.wall_s else None


def _training(made: Summary, epochs: list[Epoch], required_au: float | None) -> dict[str, Any]:
    au, rates = _au(epochs), [epoch_rate(epoch) for epoch in epochs]
    known = [rate for rate in rates if rate is not None]
    mean = None if au is None else statistics.fmean(au)
    expectation = None if mean is None or required_au is None else "success" if mean >= 100 * required_au else "fail"
    return {
        "train_au_percentage": au,
        "train_au_mean_percentage": mean,
        "train_au_meet_expectation": expectation,
        "train_au_stdev_percentage": None if au is None else statistics.pstdev(au),
        "train_throughput_samples_per_second": rates,
        "train_throughput_mean_samples_per_second": made.samples_per_s,
        "train_throughput_stdev_samples_per_second": statistics.pstdev(known) if known else None,
        "train_io_mean_MB_per_second": None if made.read_MBps is None else made.read_MBps * _MB / _MIB,
    }


def _au(epochs: list[Epoch]) -> list[float] | None:
    """Return the AU of each epoch in percent. Return None if the AU of an epoch is unknown."""
    values = [value for epoch in epochs if (value := epoch_au(epoch)) is not None]
    return values if values and len(values) == len(epochs) else None


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
    """Return a value that environment.json records for each node, one per node of the run. Return None if the value of
    a node is missing.
    """
    nodes = {node.get("host"): node.get(key) for node in run.outcome.environment.get("nodes", ())}
    values = [nodes.get(host) for host in run.result.hosts]
    return [int(value) for value in values if value is not None] if all(value is not None for value in values) else None


def _moment(text: str) -> str:
    """Return a time in UTC without the final Z, in the format of dlio_benchmark."""
    return text.removesuffix("Z")
