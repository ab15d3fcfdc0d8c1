"""A job of ranks that never ran: its recordings as rank 0 has them after the last step, and its files."""

from pathlib import Path
from typing import Any

import numpy as np

from dlio_hpc.base import serialization, units
from dlio_hpc.batch import job_record
from dlio_hpc.core import (
    cache_accounting,
    checkpoint,
    distributions,
    evaluation,
    kv_record,
    merge,
    node_activity,
    restore,
    timeline,
)
from dlio_hpc.core.merge import Host, Merged
from dlio_hpc.core.read_activity import TimeBins
from dlio_hpc.core.train import PHASE_COLUMNS
from dlio_hpc.files import rundir
from dlio_hpc.plan import plan
from dlio_hpc.results import run_result

_BINS = 128


def merged(made: plan.Plan) -> Merged:
    """Return steps of a tenth of a second. Each rank waits, computes and meets the others; every time has noise."""
    ranks, steps = made.ranks, made.runs[-1].steps_per_epoch
    random = np.random.default_rng(1)
    table = np.empty((ranks, steps, distributions.COLUMNS))
    begins = 1000.0 + np.arange(steps) / 10
    for own in table:  # one rank after the other: what is made here is large, making it is not
        own[:, distributions.STARTED] = begins + random.uniform(0, 1e-4, steps)
        own[:, distributions.READY] = own[:, distributions.STARTED] + random.gamma(2, 2e-3, steps)
        own[:, distributions.COMPUTED] = own[:, distributions.READY] + 0.05 + random.uniform(0, 1e-3, steps)
        own[:, distributions.SYNCED] = begins + 0.0999
        own[:, distributions.SAMPLES], own[:, distributions.BYTES], own[:, distributions.ASKED] = 1, 1 << 20, 0.05
    totals = np.tile([steps, 0, steps, 0.0, steps, steps * 4e-3, steps * 3e-3, steps * 1e-5], (ranks, 1))
    histograms, sizes = np.zeros((ranks, 3, 272), np.int64), np.zeros((ranks, 160), np.int64)
    histograms[..., 100:140], sizes[:, 80] = steps // 40, steps
    sums = np.tile([steps * 4e-3, 0.05], (ranks, 3, 1))
    most = np.array([steps << 20, steps, 4e-3 * steps, steps, 4e-3 * steps])[:, np.newaxis] / _BINS
    activity = random.uniform(0, 1, (ranks, 5, _BINS)) * most
    hosts = [Host(f"nid{rank // made.ranks_per_node:06}", str(rank // made.ranks_per_node)) for rank in range(ranks)]
    return Merged(
        hosts, TimeBins(1.0, 1000, _BINS), np.zeros((ranks, 1)), table, histograms, sums, totals,
        np.zeros((ranks, 1, cache_accounting.COLUMNS)), np.zeros((ranks, 0, checkpoint.COLUMNS)),
        np.zeros((ranks, 0, restore.COLUMNS)), np.zeros((ranks, 0, evaluation.COLUMNS)),
        np.zeros((ranks, 1, 2)), np.zeros((ranks, 6)), sizes, activity,
        np.zeros((ranks, 0, 2)), np.zeros((ranks, 2, node_activity.COLUMNS)),
        np.zeros((ranks, 0, PHASE_COLUMNS)), np.zeros((ranks, 0, 0), np.int64),
        *unserved(ranks),
    )  # fmt: skip


def unserved(ranks: int) -> tuple[Any, Any]:
    """Return the fields of Merged on requests, for a workload without inference."""
    return np.zeros((ranks, 0, kv_record.COLUMNS)), np.zeros((ranks, 0, kv_record.KINDS, 0), np.int64)


def leave(folder: Path, made: plan.Plan, recordings: Merged) -> run_result.Summary:
    """Write the job's directory as the ranks and the login side leave it."""
    run, nodes = made.runs[-1], list(dict.fromkeys(host.name for host in recordings.hosts))
    run_folder = rundir.run_directory(folder, run.number, run.name)
    run_folder.mkdir(parents=True)
    epochs, summary = merge.epochs(recordings, run), merge.summary(recordings, run)
    timeline.write(run_folder, recordings, run, [], "")
    layout, now = run.workload.dataset, units.utc_now()
    result = run_result.Result(
        run=rundir.run_name(run.number, run.name), kind=run.kind, plan_sha256="", started=now, ended=now,
        ranks=made.ranks, nodes=made.nodes, ranks_per_node=made.ranks_per_node,
        dataset=run_result.DatasetFacts("", "", layout.format, layout.files, layout.samples, layout.size), hosts=nodes,
        versions={}, epochs=epochs, summary=summary, generated=None, hints={}, faults=[], gap_s=None,
    )  # fmt: skip
    run_result.write(run_folder / rundir.RESULT, result)
    known = {"kernel": "6", "cpu": "any", "cores": 64, "memory_bytes": 1 << 38}
    environment = {"versions": {}, "nodes": [{"host": name, **known} for name in nodes], "variables": {}}
    rundir.write(folder / rundir.ENVIRONMENT, serialization.encode(environment))
    rundir.write(folder / rundir.PLAN, serialization.encode(made))
    job_record.save(folder, job_record.with_state(job_record.planned(made, "", ()), "completed"))
    return summary
