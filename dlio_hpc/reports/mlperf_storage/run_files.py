"""The files of a run, with the file names and the keys of MLPerf Storage's tool."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from dlio_hpc import __version__
from dlio_hpc.base import units
from dlio_hpc.reports.mlperf_storage import dlio_keys, figures
from dlio_hpc.reports.mlperf_storage.editions import Division
from dlio_hpc.reports.mlperf_storage.selection import ReportedRun

# Key of metadata.json that marks a run's folder as written by dlio-hpc.
MARK = "written_by"
_AUTHOR = f"dlio-hpc {__version__} mlperf-report"

_NAMES = frozenset(
    {
        "dlio.log",
        "summary.json",
        "0_output.json",
        "0_per_epoch_stats.json",
        "config.yaml",
        "overrides.yaml",
        "hydra.yaml",
    }
)

_LEFT_OUT = (
    "code/, systems/SYSTEM.yaml, systems/SYSTEM.pdf: the source of mlpstorage, and the description of the system",
    "results.json, results.csv: mlpstorage reports reportgen writes them",
    "dlio_config/hydra.yaml: null, because Hydra did not run",
    "*_metadata.json: executed_command is null; verification, cluster information and fs_separation.json, which "
    "mlpstorage makes while it runs, are left out",
)
_LEFT_OUT_OF_TRAINING = (
    "*_output.json: times of each step (load, proc, compute); result.json has their distribution",
    "*_per_epoch_stats.json: start and end of each epoch; result.json has the durations",
)
_LEFT_OUT_OF_CHECKPOINTS = (
    "*_per_epoch_stats.json: start, end and duration of each checkpoint; result.json has their distribution",
)


def files(run: ReportedRun, division: Division, unmet: Sequence[str] = ()) -> dict[str, bytes]:
    """Return the files of a run by their paths below the run's folder. unmet: rules that the runs of the report do not
    meet.
    """
    family = run.model.family
    phase = f"{family}_{'datagen' if run.is_generation else 'run'}"
    log = "".join(f"{line}\n" for line in _log(run)).encode()
    made = {
        f"{family}_{run.timestamp}_metadata.json": _json(_metadata(run, division, unmet)),
        "dlio.log": log,
        f"{phase}.stdout.log": log,
        f"{phase}.stderr.log": f"{_author(run)}\n".encode(),
        "dlio_config/config.yaml": _yaml(run, {"workload": dlio_keys.nested(_values(run))}),
        "dlio_config/overrides.yaml": _yaml(run, _overrides(run)),
        "dlio_config/hydra.yaml": _yaml(run, {"hydra": None}),
    }
    if not run.is_generation:
        made |= {
            "summary.json": _json(figures.summary(run)),
            "0_output.json": _json(_output(run)),
            "0_per_epoch_stats.json": _json(_per_epoch(run)),
        }
    return made


def is_written(name: str) -> bool:
    """Return whether files() returns a file with this name. name: last part of the path of a file."""
    return name in _NAMES or bool(
        re.fullmatch(r"(training|checkpointing)_(.+_metadata[.]json|.+[.]std(out|err)[.]log)", name)
    )


def missing(run: ReportedRun) -> Iterator[str]:
    """Yield the data that the files of a run lack, with the reasons."""
    yield from _LEFT_OUT
    if run.is_generation:
        return
    yield from _LEFT_OUT_OF_TRAINING if run.model.family == "training" else _LEFT_OUT_OF_CHECKPOINTS
    yield from figures.missing(run)
    reader, values = run.run.run.workload.reader, run.settings.values
    if run.model.family == "training" and "framework" not in values:
        yield f"config.yaml: framework, reader.data_loader: dlio_benchmark has no loader {reader.loader}"
    if run.model.family == "checkpointing" and "framework" not in values:
        yield "config.yaml: framework: checkpoints are written in plain requests, without a framework"
    for change in run.settings.unmatched:
        yield f"config.yaml, overrides.yaml: dlio_benchmark has no key for the change (shipped / measured) {change}"


def _author(run: ReportedRun) -> str:
    return f"Written by {_AUTHOR} from the results of {run.name}. mlpstorage and dlio_benchmark did not run."


def _metadata(run: ReportedRun, division: Division, unmet: Sequence[str]) -> dict[str, Any]:
    """Return the content of metadata.json. Version 2.0 of the tool names settings combined_params and params_dict,
    version 3.0 names them parameters and override_parameters.
    """
    result, plan, model = run.result, run.outcome.plan, run.model
    settings = dlio_keys.nested(_values(run))
    overrides = {} if run.is_generation else run.settings.overrides
    return {
        MARK: _AUTHOR,
        "written_from": {"job": plan.job, "run": result.run, "kind": result.kind, "plan_sha256": result.plan_sha256},
        "rules_not_met": list(unmet),
        "benchmark_type": model.family,
        "model": model.folder,
        "command": "datagen" if run.is_generation else "run",
        "run_datetime": run.timestamp,
        "end_datetime": result.ended.removesuffix("Z"),
        "num_processes": result.ranks,
        "accelerator": model.accelerator,
        "runtime": units.seconds_between(result.started, result.ended),
        "executed_command": None,
        "args": _arguments(run, division),
        "parameters": settings,
        "override_parameters": overrides,
        "combined_params": settings,
        "params_dict": overrides,
    }


def _arguments(run: ReportedRun, division: Division) -> dict[str, Any]:
    """Return the options that would make mlpstorage start the same run."""
    result, plan, model = run.result, run.outcome.plan, run.model
    arguments: dict[str, Any] = {
        "program": model.family,
        "command": "datagen" if run.is_generation else "run",
        "model": model.folder,
        "num_processes": result.ranks,
        "hosts": result.hosts,
        "results_dir": plan.directory,
        "closed": division == "closed",
    }
    if model.family == "training":
        return {**arguments, "accelerator_type": model.accelerator, "data_dir": run.run.run.dataset}
    values = run.settings.values
    return {
        **arguments,
        "checkpoint_folder": run.run.run.outputs,
        "num_checkpoints_write": values.get("checkpoint.num_checkpoints_write"),
        "num_checkpoints_read": values.get("checkpoint.num_checkpoints_read"),
    }


def _values(run: ReportedRun) -> dict[str, Any]:
    if not run.is_generation:
        return run.settings.values
    return {
        **run.settings.values,
        "workflow.generate_data": True,
        "workflow.train": False,
        "workflow.checkpoint": False,
    }


def _overrides(run: ReportedRun) -> list[str]:
    values = {} if run.is_generation else run.settings.overrides
    return [f"++workload.{key}={value}" for key, value in values.items()]


def _output(run: ReportedRun) -> dict[str, Any]:
    """Return the content of 0_output.json: values of each epoch. In dlio_benchmark, an epoch without its checkpoints is
    called block 1.
    """
    epochs = {}
    if run.model.family == "training":
        epochs = {
            str(epoch.epoch): {
                "au": {"block1": figures.epoch_au(epoch)}, "throughput": {"block1": figures.epoch_rate(epoch)}
            }
            for epoch in run.result.epochs
        }  # fmt: skip
    return {"hostname": run.result.hosts[0], **epochs}


def _per_epoch(run: ReportedRun) -> dict[str, Any]:
    if run.model.family == "checkpointing":
        return {}
    return {str(epoch.epoch): {"duration": f"{epoch.wall_s:.2f}"} for epoch in run.result.epochs}


def _log(run: ReportedRun) -> Iterator[str]:
    """Yield the lines of dlio.log."""
    result = run.result
    yield _author(run)
    yield (
        f"{result.started} {result.kind} starts on {units.counted(result.ranks, 'rank')}, "
        f"{units.counted(result.nodes, 'node')}"
    )
    if (made := result.generated) is not None:
        yield f"{made.files} files, {made.bytes_written} bytes written in {made.wall_s:.3f} s"
    for epoch in result.epochs if run.model.family == "training" else ():
        yield (
            f"epoch {epoch.epoch}: {epoch.steps} steps, {epoch.samples} samples in {epoch.wall_s:.3f} s; wait "
            f"{epoch.wait_s:.3f} s, computation {epoch.compute_s:.3f} s, synchronisation {epoch.sync_s:.3f} s"
        )
    for name, value in figures.metric(run).items():
        yield f"{name}: {value}"
    yield f"{result.ended} {result.kind} ends"


def _json(content: dict[str, Any]) -> bytes:
    return f"{json.dumps(content, indent=4)}\n".encode()


def _yaml(run: ReportedRun, content: object) -> bytes:
    return f"# {_author(run)}\n{yaml.safe_dump(content, sort_keys=False)}".encode()
