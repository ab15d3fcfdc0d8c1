"""Which workloads can have a metric. A limit on a metric that a workload never has is a mistake in the criteria or in
the study, and not a property of the storage.
"""

from collections.abc import Callable
from typing import NamedTuple

from dlio_hpc.config.workload import Workload
from dlio_hpc.results.metrics import METRICS, MetricName, of_phase
from dlio_hpc.results.phases import PHASES, Phase


class Owners(NamedTuple):
    """The workloads that can have a metric. description: these workloads, in a sentence. has: whether a workload is
    one of them.
    """

    description: str
    has: Callable[[Workload], bool]


def _saves(workload: Workload) -> bool:
    return workload.checkpoint is not None and workload.checkpoint.fsync


def _restores(workload: Workload) -> bool:
    return workload.checkpoint is not None and workload.checkpoint.reads > 0


def _reads_checkpoints(workload: Workload) -> bool:
    checkpoint = workload.checkpoint
    return checkpoint is not None and (checkpoint.reads > 0 or (checkpoint.fsync and checkpoint.read_back))


def _opens(workload: Workload) -> bool:
    return workload.reads_samples and workload.dataset.facts.holds_data


def _loads(workload: Workload) -> bool:
    keys = workload.inference
    return keys is not None and (keys.turns > 1 or keys.system_prompt >= keys.block_tokens)


def _of_phase(phase: Phase) -> Owners:
    description = f"metadata workloads with {phase} in metadata.phases, such as metadata_own"
    return Owners(description, lambda workload: workload.metadata is not None and phase in workload.metadata.order)


_SAMPLES = Owners("workloads that read samples, such as cosmoflow", lambda workload: workload.reads_samples)
_FILES = Owners("workloads that read a dataset, such as cosmoflow", _opens)
_SAVING = Owners("workloads with checkpoint and checkpoint.fsync=true, such as llama3_8b", _saves)
_READING = Owners("workloads with checkpoint.reads or checkpoint.read_back, such as llama3_8b", _reads_checkpoints)
_RESTORING = Owners("workloads with checkpoint.reads, such as llama3_8b", _restores)
_SERVING = Owners("inference workloads, such as kv_cache_llama3_8b", lambda workload: workload.inference is not None)
_LOADING = Owners(
    "inference workloads with inference.turns or inference.system_prompt, such as kv_cache_llama3_8b", _loads
)
_SEARCHING = Owners(
    "inference workloads with inference.search",
    lambda workload: workload.inference is not None and workload.inference.search is not None,
)
# The owners of each metric. Metrics that are not listed are in every run.
_OWNERS: dict[str, Owners] = {
    **dict.fromkeys(("samples_per_s", "au", "au_mlperf", "wait_p99_s", "common_samples_per_s"), _SAMPLES),
    **dict.fromkeys(("read_MBps", "io_time_s", "read_p99_s", "opens_per_s", "open_p99_s", "metadata_fraction"), _FILES),
    **dict.fromkeys(("checkpoint_write_MBps", "checkpoint_safe_s"), _SAVING),
    "checkpoint_read_MBps": _READING,
    **dict.fromkeys(("restore_s", "restore_gap_s"), _RESTORING),
    **{of_phase(phase): _of_phase(phase) for phase in PHASES},
    **dict.fromkeys(
        (
            "kv_write_MBps",
            "kv_write_p99_s",
            "ttft_p50_s",
            "ttft_p95_s",
            "ttft_p99_s",
            "ttft_load_share",
            "kv_hit_share",
            "late_share",
        ),
        _SERVING,
    ),
    "users_in_time": _SEARCHING,
    **dict.fromkeys(("kv_read_MBps", "kv_tokens_per_s", "kv_read_p99_s"), _LOADING),
}


def never(workload: Workload, metric: MetricName) -> str:
    """Return a sentence if a workload can never have a metric: that this is so, and which workloads have it. Return ""
    if the workload can have the metric.
    """
    owners = _OWNERS.get(metric)
    if owners is None or owners.has(workload):
        return ""
    return f"{workload.name} never has {METRICS[metric].noun} ({metric}); {owners.description}, have it"
