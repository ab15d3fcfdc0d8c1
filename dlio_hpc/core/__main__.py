"""Program that the launcher starts on every rank: python -m mpi4py -m dlio_hpc.core PLAN.json --run N."""

import argparse
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import DlioError, classified, kind_of, of_system, reported
from dlio_hpc.core import node_leftovers, orphan_ranks
from dlio_hpc.files import filesystem, run_outputs, rundir
from dlio_hpc.results.run_result import RunError

# When ranks abort, launchers drop output that they have not yet forwarded. The rank that failed first therefore waits
# _FORWARD_S for its message to be forwarded. It then removes the outputs of the run, for at most _REMOVAL_S, because a
# file system may hang. Other ranks that fail wait _GRACE_S, so that they do not abort before the first one.
_FORWARD_S, _REMOVAL_S, _GRACE_S = 0.2, 10.0, 12.0
# Seconds for which a rank waits until what earlier jobs left on its node is removed.
_CLEARING_S = 1.0
# Variables with the number of a rank on its node: of MPICH and Intel MPI, Open MPI, PALS, Flux, Slurm. mpiexec in a job
# of Slurm passes Slurm's variable on.
_NODE_RANK = (
    "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Execute a run on this rank. If the rank fails, report the reason, remove the outputs of the run, and end all
    ranks immediately, without waiting for reader threads.
    """
    parser = argparse.ArgumentParser(prog="python -m mpi4py -m dlio_hpc.core", description=__doc__)
    parser.add_argument("plan", type=Path, metavar="PLAN.json", help="plan from dlio-submit; results go to its folder")
    parser.add_argument("--run", type=int, required=True, metavar="N", help="number of the run in the plan")
    parser.add_argument("--packages", action="store_true", help="only import the packages that the job's runs need")
    parser.add_argument("--probe", action="store_true", help="only read the run's dataset in a plain loop (site.probe)")
    options = parser.parse_args(arguments)

    # With NumPy, OpenBLAS starts a thread per core. These threads poll before they sleep, and ranks do not use them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with orphan_ranks.ending_all():
        orphan_ranks.end_with_proxy()  # before MPI starts: ranks may wait for others forever in MPI_Init
        _clear()
        from mpi4py import MPI

        node_leftovers.mark()

        from dlio_hpc.core import clock, environment, neighbours
        from dlio_hpc.core import run as core

        comm = MPI.COMM_WORLD
    directory = options.plan.resolve().parent
    folders: list[Path] = []
    own: Path | None = None
    outputs: list[str] = []
    try:
        plan, run, plan_sha256 = core.load(options.plan, options.run)
        folders = [rundir.run_directory(directory, one.number, one.name) for one in plan.launched_with(run)]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        outputs = [one.outputs for one in plan.launched_with(run)]
        if comm.rank == 0:
            for folder in folders:
                (folder / rundir.ERROR).unlink(missing_ok=True)
        clock.assemble(comm)
        if options.packages:
            from dlio_hpc.core import package_check

            package_check.require(comm, plan.packages, plan.nodes)
        elif options.probe:
            core.probe(comm, folders[0], plan, run)
        else:
            environment.write(comm, directory)
            seat = neighbours.seat(comm, plan, run)
            if seat.run is not None:
                own = rundir.run_directory(directory, seat.run.number, seat.run.name)
                core.execute(seat.comm, directory, seat.plan, seat.run, plan_sha256, seat.neighbours)
        clock.assemble(comm)  # rank 0 is still merging and writing
    except Exception as fault:  # noqa: BLE001 - reported, then all ranks end
        if _report(comm.rank, core.concerned(fault, folders, own), fault):
            _remove(outputs)
        comm.Abort(classified(fault).exit_code)


def _clear() -> None:
    """Remove the files that killed processes left on this node. Every rank removes old shared memory, because MPI_Init
    needs this. Only one rank of the node removes temporary files.
    """
    number = next((os.environ[name] for name in _NODE_RANK if name in os.environ), "0")
    temporary = None if number == "0" else ()
    filesystem.answered(partial(node_leftovers.clear, temporary=temporary), _CLEARING_S)


def _remove(outputs: list[str]) -> None:
    """Remove the folders of the outputs. Only the rank that failed first calls this function, and only after it has
    reported its failure. Other ranks may then fail because files in these folders are missing, but they do not report
    that.
    """
    removal = threading.Thread(target=lambda: list(map(run_outputs.discard, outputs)), daemon=True)
    removal.start()
    removal.join(_REMOVAL_S)


def _report(rank: int, folders: list[Path], fault: Exception) -> bool:
    """Report the failure of this rank: write error.json to `folders`, and print a line to stderr (job.err). folders:
    the folders of the runs of the launch; empty to write no file. Only the first rank that fails reports. A rank that
    fails later only waits, because the first failure is usually the cause of its failure. Return whether this rank was
    the first. error.json in the first folder shows which rank was the first.
    """
    host = os.uname().nodename
    known = classified(fault)
    kind = kind_of(known.exit_code) if isinstance(fault, DlioError) else type(fault)
    error = RunError(rank, host, kind.__name__, str(known), known.exit_code)
    is_first = False
    for folder in folders:
        try:
            with (folder / rundir.ERROR).open("xb") as file:
                file.write(serialization.encode(error))
            is_first = True
        except FileExistsError:
            if is_first:
                continue
            time.sleep(_GRACE_S)
            return False
        except OSError as hindrance:
            print(f"dlio-hpc: cannot write {of_system(hindrance, folder / rundir.ERROR)}", file=sys.stderr)
    reported(fault, f"rank {rank} on {host}: ")
    time.sleep(_FORWARD_S)
    return is_first


if __name__ == "__main__":
    main()
