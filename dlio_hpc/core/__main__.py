"""What every rank executes: python -m mpi4py -m dlio_hpc.core PLAN.json --run N, under any mpiexec."""

import argparse
import os
import sys
from pathlib import Path

from dlio_hpc import document, rundir
from dlio_hpc.errors import DlioError
from dlio_hpc.results import RunError


def main(arguments: list[str] | None = None) -> None:
    """Exits non-zero on the rank that fails; mpi4py's runner then ends the others."""
    parser = argparse.ArgumentParser(prog="python -m mpi4py -m dlio_hpc.core", description=__doc__)
    parser.add_argument("plan", type=Path, metavar="PLAN.json", help="written by dlio-submit; results go beside it")
    parser.add_argument("--run", type=int, required=True, metavar="N", help="which of the plan's runs")
    options = parser.parse_args(arguments)

    from mpi4py import MPI

    from dlio_hpc.core import run as core

    comm = MPI.COMM_WORLD
    directory = options.plan.resolve().parent
    folder = directory
    try:
        plan, run, plan_sha256 = core.load(options.plan, options.run)
        folder = rundir.run_directory(directory, run.number, run.name)
        folder.mkdir(parents=True, exist_ok=True)
        if comm.rank == 0:
            (folder / rundir.ERROR).unlink(missing_ok=True)
        comm.Barrier()
        core.execute(comm, directory, plan, run, plan_sha256)
    except DlioError as fault:
        _report(comm.rank, folder, fault, fault.exit_code)
        sys.exit(fault.exit_code)
    except Exception as fault:
        _report(comm.rank, folder, fault, DlioError.exit_code)
        raise


def _report(rank: int, folder: Path, fault: Exception, exit_code: int) -> None:
    """error.json and a line in job.err, by the first rank that fails; the others fail because of it."""
    host = os.uname().nodename
    error = RunError(rank, host, type(fault).__name__, str(fault), exit_code)
    temporary = folder / f".{rundir.ERROR}.{rank}.tmp"
    try:
        temporary.write_bytes(document.encode(error))
        os.link(temporary, folder / rundir.ERROR)
    except FileExistsError:
        return
    except OSError as hindrance:
        print(f"dlio-hpc: cannot write {folder / rundir.ERROR}: {hindrance}", file=sys.stderr)
    finally:
        temporary.unlink(missing_ok=True)
    print(f"dlio-hpc: rank {rank} on {host}: {fault}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
