"""A job of ranks that never ran: its recordings as rank 0 has them after the last step, and what it leaves."""

from pathlib import Path

import numpy as np

from dlio_hpc import document, plan, results, rundir, units
from dlio_hpc.batch import job
from dlio_hpc.core import arrival, disturbance, measures, merge, timeline
from dlio_hpc.core.activity import Lattice
from dlio_hpc.core.merge import Host, Merged

_BINS = 128


def merged(made: plan.Plan) -> Merged:
    """Steps of a tenth of a second: each rank waits, computes, and meets the others; noise in every instant."""
    ranks, steps = made.ranks, made.runs[-1].steps_per_epoch
    random = np.random.default_rng(1)
    table = np.empty((ranks, steps, measures.COLUMNS))
    begins = 1000.0 + np.arange(steps) / 10
    for own in table:  # one rank after the other: what is made here is large, making it is not
        own[:, measures.STARTED] = begins + random.uniform(0, 1e-4, steps)
        own[:, measures.READY] = own[:, measures.STARTED] + random.gamma(2, 2e-3, steps)
        own[:, measures.COMPUTED] = own[:, measures.READY] + 0.05 + random.uniform(0, 1e-3, steps)
        own[:, measures.SYNCED] = begins + 0.0999
        own[:, measures.SAMPLES], own[:, measures.BYTES], own[:, measures.ASKED] = 1, 1 << 20, 0.05
    totals = np.tile([steps, 0, steps, 0.0, steps, steps * 4e-3, steps * 3e-3, steps * 4e-3, 0.05], (ranks, 1))
    histogram, sizes = np.zeros((ranks, 272), np.int64), np.zeros((ranks, 160), np.int64)
    histogram[:, 100:140], sizes[:, 80] = steps // 40, steps
    most = np.array([steps << 20, steps, 4e-3 * steps])[:, np.newaxis] / _BINS
    activity = random.uniform(0, 1, (ranks, 3, _BINS)) * most
    hosts = [Host(f"nid{rank // made.ranks_per_node:06}", str(rank // made.ranks_per_node)) for rank in range(ranks)]
    return Merged(
        hosts, Lattice(1.0, 1000, _BINS), np.zeros((ranks, 1)), table, histogram, totals,
        np.zeros((ranks, 1, arrival.COLUMNS)),
        np.zeros((ranks, 0, 7)), np.zeros((ranks, 1, 2)), np.zeros((ranks, 6)), sizes, activity,
        np.zeros((ranks, 0, 2)), np.zeros((ranks, 2, disturbance.COLUMNS)),
    )  # fmt: skip


def leave(folder: Path, made: plan.Plan, recordings: Merged) -> results.Summary:
    """The job's directory, as the core and the login side leave it."""
    run, nodes = made.runs[-1], list(dict.fromkeys(host.name for host in recordings.hosts))
    found = rundir.run_directory(folder, run.number, run.name)
    found.mkdir(parents=True)
    epochs, summary = merge.epochs(recordings, run), merge.summary(recordings, run)
    timeline.write(found, recordings, run, [], "")
    layout, now = run.workload.dataset, units.utc_now()
    result = results.Result(
        run=rundir.run_name(run.number, run.name), kind=run.kind, plan_sha256="", started=now, ended=now,
        ranks=made.ranks, nodes=made.nodes, ranks_per_node=made.ranks_per_node,
        dataset=results.DatasetFacts("", "", layout.format, layout.files, layout.samples, layout.size), hosts=nodes,
        versions={}, epochs=epochs, summary=summary, generated=None, hints={}, faults=[], gap_s=None,
    )  # fmt: skip
    results.write(found / rundir.RESULT, result)
    known = {"kernel": "6", "cpu": "any", "cores": 64, "memory_bytes": 1 << 38}
    environment = {"versions": {}, "nodes": [{"host": name, **known} for name in nodes], "variables": {}}
    rundir.write(folder / rundir.ENVIRONMENT, document.encode(environment))
    rundir.write(folder / rundir.PLAN, document.encode(made))
    job.save(folder, job.seen(job.planned(made, "", ()), "completed"))
    return summary
