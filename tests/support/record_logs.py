"""Records the logs in tests/logs/apps: `python -m tests.support.record_logs [--again] MPI SERIAL [NAME...]`. With
--again, only those of the second run.

MPI and SERIAL are two builds of libdarshan 3.5, for the MPI of the environment and without MPI. Both take the folder of
their logs from a variable: `--with-log-path-by-env=DARSHAN_LOG_FOLDER --with-jobid-env=NONE`. The paths in the logs are
those of this machine, so /scratch must be writable; and the environment should lie at a neutral path, because the logs
of programs without MPI show the libraries that they load.

A program runs four times on a warm page cache: once unrecorded, twice with traces, and once with counters alone. The
last run is compared with the traced ones and dropped: traces change neither requests nor bytes.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from dlio_hpc.analysis.log import merged_program
from dlio_hpc.darshan import log_faults, log_reader
from dlio_hpc.programs.files import file_stats
from tests.support.fidelity import AGAIN, APP_LOGS
from tests.support.places import ROOT
from tests.support.programs import PROGRAMS

SCRATCH = Path("/scratch")
# Largest log of a process.
MOST = 60_000
_RECORDS, _MODULES = "POSIX,STDIO,DXT_POSIX", "POSIX,STDIO,MPI-IO,DXT_POSIX,DXT_MPIIO"
Totals = dict[str, tuple[int, int, int, int]]


def record(name: str, libraries: tuple[Path, Path], folder: Path, again: bool) -> None:
    """Record the program twice and print what its logs hold. folder: for logs that are not kept. again: whether the
    logs of the first run stay as they are.
    """
    data = SCRATCH / name
    shutil.rmtree(data, ignore_errors=True)
    _python(name, "prepare", data, {}, 0)
    prepared = set(data.rglob("*"))
    _run(name, data, {})
    for target in (APP_LOGS / AGAIN,) if again else (APP_LOGS, APP_LOGS / AGAIN):
        _cleaned(data, prepared)
        logs = _recorded(name, data, libraries, folder, True)
        for old in target.glob(f"{name}*.darshan"):
            old.unlink()
        target.mkdir(exist_ok=True)
        for log, new in zip(logs, _names(name, logs), strict=True):
            shutil.copyfile(log, target / new)
    traced = [_totals(data, sorted(target.glob(f"{name}*.darshan"))) for target in (APP_LOGS, APP_LOGS / AGAIN)]
    _cleaned(data, prepared)
    counted = _totals(data, _recorded(name, data, libraries, folder, False))
    shutil.rmtree(data)
    sizes = [
        path.stat().st_size
        for path in (*APP_LOGS.glob(f"{name}*.darshan"), *(APP_LOGS / AGAIN).glob(f"{name}*.darshan"))
    ]
    print(f"{name}: {len(sizes)} logs of at most {max(sizes):,} B, {sum(sizes):,} B in all")
    for kind in sorted({*traced[0], *traced[1], *counted}):
        first, second, plain = (part.get(kind) for part in (*traced, counted))
        agree = "the same in all runs" if first == second == plain else f"again {second}, without traces {plain}"
        print(f"  {kind}: (reads, bytes read, writes, bytes written) {first}: {agree}")


def _cleaned(data: Path, prepared: set[Path]) -> None:
    """Remove what a run wrote."""
    for path in sorted(set(data.rglob("*")) - prepared, reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def _recorded(name: str, data: Path, libraries: tuple[Path, Path], folder: Path, trace: bool) -> list[Path]:
    """Run the program and return its logs. A program without MPI is recorded with the libraries that it loads, unless
    a log then is too large.
    """
    mpi, serial = libraries
    wide = (False,) if PROGRAMS[name].ranks else (True, False)
    for is_wide in wide:
        into = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
        config, live = into / "darshan.conf", into / "live"
        live.mkdir()
        config.write_text(_config(is_wide, trace, folder))
        variables = {
            "LD_PRELOAD": str(mpi if PROGRAMS[name].ranks else serial),
            "DARSHAN_CONFIG_PATH": str(config), "DARSHAN_LOG_FOLDER": str(into), "DARSHAN_MMAP_LOGPATH": str(live),
        }  # fmt: skip
        if not PROGRAMS[name].ranks:
            variables["DARSHAN_ENABLE_NONMPI"] = "1"
        _run(name, data, variables)
        logs = [path for path in into.glob("*.darshan") if _is_programs(path)]
        if all(path.stat().st_size <= MOST for path in logs):
            return sorted(logs, key=lambda path: (bool(_parent(path)), path.name))
    raise SystemExit(f"{name}: a log has more than {MOST:,} B")


def _config(is_wide: bool, trace: bool, folder: Path) -> str:
    """Return the configuration of libdarshan. Its memory is large enough for every record of the programs. Libraries
    are recorded without Python's bytecode, which has a file for each module.
    """
    lines = ["MOD_ENABLE DXT_POSIX,DXT_MPIIO"] if trace else ["MOD_DISABLE DXT_POSIX,DXT_MPIIO"]
    lines += [f"MAX_RECORDS 65536 {module}" for module in _RECORDS.split(",")]
    lines += ["MODMEM 128", "NAMEMEM 16"]
    here = ROOT
    apart = [f"^{re.escape(str(path))}/" for path in (here, folder, Path(sys.base_prefix))]
    lines.append(f"NAME_EXCLUDE {','.join(['[.]pyc', *apart]) if is_wide else '.'} {_MODULES}")
    lines.append(f"NAME_INCLUDE ^{SCRATCH}/ {_MODULES}")
    return "\n".join(lines) + "\n"


def _is_programs(path: Path) -> bool:
    return "tests.apps" in log_reader.load(path, trace=False).job.program


def _parent(path: Path) -> str | None:
    return log_reader.load(path, trace=False).job.metadata.get("fork_parent")


def _names(name: str, logs: list[Path]) -> list[str]:
    """Return the names that the logs are kept under: of several processes, with the parent's number and their own."""
    if len(logs) == 1:
        return [f"{name}.darshan"]
    return [f"{name}_{match[0]}_.darshan" for log in logs if (match := re.search(r"id\d+-\d+", log.name))]


def _run(name: str, data: Path, variables: dict[str, str]) -> None:
    _python(name, "train", data, variables, PROGRAMS[name].ranks)


def _python(name: str, part: str, data: Path, variables: dict[str, str], ranks: int) -> None:
    """Run a part of the program. variables: environment of its processes, but not of mpiexec."""
    bin_folder = Path(sys.executable).parent
    environment = {
        **os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = ["python", "-m", f"tests.apps.{name}", part, str(data)]
    if ranks:
        passed = [word for key, value in variables.items() for word in ("-genv", key, value)]
        command = ["mpiexec", "-n", str(ranks), *passed, *command]
    else:
        environment |= variables
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          cwd=ROOT, check=False)  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


def _totals(data: Path, paths: list[Path]) -> Totals:
    """Return requests and bytes of the files below the program's folder, by dataset or not."""
    logs = [log_reader.load(path) for path in paths]
    for log in logs:
        for fault in log_faults.judge(log):
            if fault.name != "DXT missing" or log.path.is_relative_to(APP_LOGS):
                print(f"  {log.path.name}: {fault.name}: {fault.text}")
    dataset = {str(path) for path in data.glob(PROGRAMS[data.name].data)}
    totals: dict[str, Counter[int]] = {}
    for file in file_stats.take(merged_program.merge(logs)):
        if file.path.startswith(f"{data}/"):
            kind = "dataset" if file.path in dataset else "other files"
            totals.setdefault(kind, Counter()).update(
                {0: file.reads, 1: file.bytes_read, 2: file.writes, 3: file.bytes_written}
            )
    return {kind: (sums[0], sums[1], sums[2], sums[3]) for kind, sums in totals.items()}


if __name__ == "__main__":
    mpi_library, serial_library, *chosen = (argument for argument in sys.argv[1:] if argument != "--again")
    with tempfile.TemporaryDirectory() as scratch:
        for program in chosen or PROGRAMS:
            record(program, (Path(mpi_library), Path(serial_library)), Path(scratch), "--again" in sys.argv)
