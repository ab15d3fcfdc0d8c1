"""A run under the recorder: its folder, which brings a copy of the recorder, its variables, its summary."""

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from dlio_hpc.base.errors import ConfigError, DlioError
from dlio_hpc.programs.recorder.recording import PROCESSES
from dlio_hpc.programs.recorder.session import ANONYMOUS, FOLDER
from dlio_hpc.programs.recordings import recording_files

RECORDER = Path(__file__).parent.parent / "recorder"
# Signals that batch systems send to a job, which the program is to have.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def prepare(folder: Path | None) -> Path:
    """Make the folder of a recording, with a copy of the recorder. Raise ConfigError if it has a recording already."""
    folder = Path(time.strftime("recording-%Y%m%d-%H%M%S") if folder is None else folder).absolute()
    if (folder / "recorder").exists() or recording_files.is_recording(folder):
        raise ConfigError(f"{folder} has a recording already; choose another folder with -o")
    if ":" in str(folder):
        raise ConfigError(f"{folder} has a colon in its name, which PYTHONPATH does not allow; choose another folder")
    try:
        shutil.copytree(RECORDER, folder / "recorder", ignore=shutil.ignore_patterns("__pycache__"))
        (folder / PROCESSES).mkdir()
    except OSError as fault:
        raise ConfigError(f"cannot make {folder}: {fault.strerror}") from fault
    return folder


def discard(folder: Path) -> None:
    """Remove the folder of a recording whose program did not start, and nothing else in it."""
    shutil.rmtree(folder / "recorder")
    (folder / PROCESSES).rmdir()
    if not any(folder.iterdir()):
        folder.rmdir()


def variables(folder: Path, is_anonymous: bool) -> dict[str, str]:
    """Return the variables that switch recording on. Hashes of two recordings cannot be compared: each has its salt."""
    paths = [str(folder / "recorder" / "start"), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    made = {"PYTHONPATH": ":".join(paths), FOLDER: str(folder)}
    return made | ({ANONYMOUS: secrets.token_hex(8)} if is_anonymous else {})


def exports(values: Mapping[str, str]) -> str:
    """Return commands of a shell that set the variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def run(command: Sequence[str], values: Mapping[str, str]) -> int:
    """Run a program with these variables, and return its exit code. Signals of the batch system are passed on."""
    child = subprocess.Popen(command, env={**os.environ, **values})

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    # A terminal sends its interrupt to both; the program decides how it ends.
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN if sys.stdin.isatty() else pass_on)
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def summary(folder: Path) -> str:
    """Return a sentence on what was recorded."""
    try:
        recordings = recording_files.load(folder)
    except DlioError as fault:
        return f"nothing was recorded: {fault}"
    faults = sum(len(one.faults) for one in recordings)
    killed = sum(not one.has_end for one in recordings)
    size = sum(one.path.stat().st_size for one in recordings)
    state = f"recorded {len(recordings)} process(es) in {size:,} B"
    state += f"; {killed} of them did not end by themselves" if killed else ""
    state += f"; {faults} remark(s) on what is not recorded" if faults else ""
    return f"{state}; see: dlio-hpc characterize {shlex.quote(str(folder))}"
