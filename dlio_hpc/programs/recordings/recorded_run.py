"""A run under the recorder: its folder, which contains a copy of the recorder, its environment variables, and its
summary.
"""

import contextlib
import errno
import os
import secrets
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from dlio_hpc.base.errors import ConfigError, DlioError
from dlio_hpc.base.units import counted
from dlio_hpc.programs.recorder.recording import PROCESSES
from dlio_hpc.programs.recorder.session import ANONYMOUS, FOLDER
from dlio_hpc.programs.recordings import recording_files

RECORDER = Path(__file__).parent.parent / "recorder"
# Folder of a recorder, below that of its recording, that is on the path of Python.
_START = os.path.join("recorder", "start")
# Bytes at the end of a file in which its end is written.
_TAIL = 4096
# Seconds after the end of a program until the summary of its recording is printed.
_LATE_S = 0.1


def prepare(folder: Path | None) -> Path:
    """Create the folder of a recording, with a copy of the recorder. Raise ConfigError if the folder already contains a
    recording or other files.
    """
    folder = Path(time.strftime("recording-%Y%m%d-%H%M%S") if folder is None else folder).absolute()
    if (folder / "recorder").exists() or recording_files.is_recording(folder):
        raise ConfigError(f"{folder} has a recording already; choose another folder with -o")
    if folder.is_dir() and (others := sorted(os.listdir(folder))):
        raise ConfigError(f"{folder} has other files, such as {others[0]}; give a new folder with -o")
    if ":" in str(folder):
        raise ConfigError(f"{folder} has a colon in its name, which PYTHONPATH does not allow; choose another folder")
    try:
        shutil.copytree(RECORDER, folder / "recorder", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / PROCESSES).mkdir()
    except OSError as fault:
        raise ConfigError(f"cannot make {folder}: {fault.strerror}") from fault
    return folder


def discard(folder: Path) -> None:
    """Remove the folder of a recording whose program did not start. Other files in the folder are kept."""
    shutil.rmtree(folder / "recorder")
    (folder / PROCESSES).rmdir()
    if not any(folder.iterdir()):
        folder.rmdir()


def variables(folder: Path, is_anonymous: bool) -> dict[str, str]:
    """Return the environment variables that enable recording. Hashes of two recordings cannot be compared, because each
    recording has its own salt.
    """
    given = os.environ.get("PYTHONPATH")
    # Python takes an empty entry for the working directory, but an empty variable for none.
    others = [path for path in given.split(":") if not path.endswith(f"/{_START}")] if given else []
    paths = [str(folder / _START), *others]
    made = {"PYTHONPATH": ":".join(paths), FOLDER: str(folder)}
    return made | ({ANONYMOUS: secrets.token_hex(8)} if is_anonymous else {})


def exports(values: Mapping[str, str]) -> str:
    """Return shell commands that set the variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def run(command: Sequence[str], values: Mapping[str, str], folder: Path) -> None:
    """Replace this process by the program, with these variables. The program then has the terminal, gets the signals
    and gives the exit code. A separate process prints the summary of the recording after the program has ended. Raise
    OSError if the program cannot be run.
    """
    program = os.getpid()
    if sys.stderr is not None:  # the caller may have closed it
        sys.stderr.flush()
    child = os.fork()
    if child == 0:  # its child belongs to nobody, so that the program does not wait for a process that it did not start
        if os.fork() == 0:
            _summarize(program, folder)
        os._exit(0)
    with contextlib.suppress(ChildProcessError):  # a caller that ignores SIGCHLD has no child to wait for
        os.waitpid(child, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits that
        signal.signal(number, signal.SIG_DFL)
    _become(command, {**os.environ, **values})


def _become(command: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Replace this process by the program. The shell runs a script whose first line names no interpreter."""
    try:
        os.execvpe(command[0], list(command), variables)
    except OSError as fault:
        script = shutil.which(command[0])
        if fault.errno != errno.ENOEXEC or script is None:
            raise
        os.execve("/bin/sh", ["sh", script, *command[1:]], variables)


def _summarize(program: int, folder: Path) -> NoReturn:
    """Wait for the end of a process, print the summary of its recording on stderr, and exit. If the folder of the
    recording is gone, the program could not be run, and nothing is printed.
    """
    try:
        os.setsid()
        with open(os.devnull, "r+b") as nowhere:
            os.dup2(nowhere.fileno(), 0)
            os.dup2(nowhere.fileno(), 1)
        _close_inherited()
        begun = _begun(program)
        while begun is not None and _begun(program) == begun:
            time.sleep(_LATE_S)
        if (folder / "recorder").exists():
            os.write(2, f"{summary(folder)}\n".encode("utf-8", "backslashreplace"))
    finally:
        os._exit(0)


def _close_inherited() -> None:
    """Close all files except the first three. Other processes may wait until these files are closed, or until a lock is
    free. They then wait only for the program, not for this process.
    """
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2:
            with contextlib.suppress(OSError):  # the descriptor of the list itself is closed already
                os.close(number)


def _begun(process: int) -> str | None:
    """Return the start time of a process, in ticks since the start of the machine; None if it has ended."""
    try:
        state, *facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else facts[18]


def summary(folder: Path) -> str:
    """Return a sentence on what was recorded."""
    try:
        paths = recording_files.listed(folder)
    except DlioError as fault:
        return f"nothing was recorded: {fault}"
    contents = (path.read_bytes() for path in paths)
    size = faults = killed = 0
    for content in contents:
        size += len(content)
        faults += content.count(b',"fault",') + content.count(b',"unseen",')
        killed += b',"end"]' not in content[-_TAIL:]
    state = f"recorded {counted(len(paths), 'process')} in {size:,} B"
    state += f"; {killed} of them did not end by themselves" if killed else ""
    state += f"; {counted(faults, 'remark')} about data that are not recorded" if faults else ""
    return f"{state}; see: dlio-hpc characterize {shlex.quote(str(folder))}"
