"""What every rank executes: python -m mpi4py -m dlio_hpc.core PLAN.json --run N, under any mpiexec."""

import argparse
import os
import sys
import time
from pathlib import Path

from dlio_hpc import document
from dlio_hpc.core import orphan_ranks
from dlio_hpc.errors import classified, of_system, reported
from dlio_hpc.files import rundir
from dlio_hpc.results import RunError

# Launchers drop what they have not forwarded when ranks are aborted: time for the message of the rank that failed
# first, and for other ranks that failed to leave it the word.
_FORWARD_S, _GRACE_S = 0.2, 1.0


def main(arguments: list[str] | None = None) -> None:
    """A rank that fails says why and ends all ranks at once, whatever its reader threads still wait for."""
    parser = argparse.ArgumentParser(prog="python -m mpi4py -m dlio_hpc.core", description=__doc__)
    parser.add_argument("plan", type=Path, metavar="PLAN.json", help="written by dlio-submit; results go beside it")
    parser.add_argument("--run", type=int, required=True, metavar="N", help="which of the plan's runs")
    parser.add_argument("--packages", action="store_true", help="only import what the job's runs need")
    options = parser.parse_args(arguments)

    with orphan_ranks.ending_all():
        orphan_ranks.end_with_proxy()  # first: ranks may wait for others for ever in MPI's own start
        from mpi4py import MPI

        from dlio_hpc.core import package_check
        from dlio_hpc.core import run as core

        comm = MPI.COMM_WORLD
    directory = options.plan.resolve().parent
    folder: Path | None = None
    try:
        plan, run, plan_sha256 = core.load(options.plan, options.run)
        folder = rundir.run_directory(directory, run.number, run.name)
        folder.mkdir(parents=True, exist_ok=True)
        if comm.rank == 0:
            (folder / rundir.ERROR).unlink(missing_ok=True)
        comm.Barrier()
        if options.packages:
            package_check.require(comm, plan.packages, plan.nodes)
        else:
            core.execute(comm, directory, plan, run, plan_sha256)
    except Exception as fault:  # noqa: BLE001 - reported, then all ranks end
        _report(comm.rank, folder, fault)
        comm.Abort(classified(fault).exit_code)


def _report(rank: int, folder: Path | None, fault: Exception) -> None:
    """error.json in the run's folder, as far as it is known, and a line in job.err, by the first rank that fails; the
    others fail because of it.
    """
    host = os.uname().nodename
    known = classified(fault)
    error = RunError(rank, host, type(fault).__name__, str(known), known.exit_code)
    if folder is not None:
        try:
            with (folder / rundir.ERROR).open("xb") as file:
                file.write(document.encode(error))
        except FileExistsError:
            time.sleep(_GRACE_S)
            return
        except OSError as hindrance:
            print(f"dlio-hpc: cannot write {of_system(hindrance, folder / rundir.ERROR)}", file=sys.stderr)
    reported(fault, f"rank {rank} on {host}: ")
    time.sleep(_FORWARD_S)


if __name__ == "__main__":
    main()
