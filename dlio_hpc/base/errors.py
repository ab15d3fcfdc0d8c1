"""Exceptions for expected failures. Each class has an exit code."""

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from dlio_hpc.base.safe_text import printable


class DlioError(Exception):
    """Base class of all errors. A message has one or two lines and names a remedy."""

    exit_code = 6


class ConfigError(DlioError):
    """The user's request is impossible, because an option, workload, site or dataset does not fit."""

    exit_code = 2


class InvalidRun(DlioError):
    """Data that were read, written or archived are not as planned. The results must not be used."""

    exit_code = 3


class InfrastructureError(DlioError):
    """The batch system, the MPI launch, a node or a file system failed."""

    exit_code = 6


class Incomplete(DlioError):
    """A job has not completed: it is still running, was cancelled, has exceeded its time limit, or is lost."""

    exit_code = 7


class Unexpected(DlioError):
    """A bug in dlio-hpc. The exit code is EX_SOFTWARE of sysexits(3)."""

    exit_code = 70


def kind_of(exit_code: int) -> type[DlioError]:
    """Return the error class with this exit code. Return InfrastructureError for codes that dlio-hpc does not
    define.
    """
    kinds: tuple[type[DlioError], ...] = (ConfigError, InvalidRun, Incomplete, Unexpected)
    return next((kind for kind in kinds if kind.exit_code == exit_code), InfrastructureError)


# Packages whose exceptions report a fault of the machine or of the storage, not a bug in dlio-hpc.
_LIBRARIES = {"mpi4py", "tensorflow", "torch"}


# Packages that dlio-hpc imports. If one is missing, the Python environment is not complete.
_DEPENDENCIES = {
    "click", "google_crc32c", "h5py", "jinja2", "keras", "mpi4py", "msgspec", "numpy", "pandas", "pyarrow", "rich",
    "tensorflow", "torch", "yaml", "zstandard",
}  # fmt: skip
# Parts of messages of the dynamic loader (ld.so), mpi4py, NumPy and Cython about a library that cannot be loaded, or
# that does not fit the package that uses it.
_UNUSABLE_LIBRARY = re.compile(
    r"cannot open shared object file|version [`'][^']+' not found|undefined symbol|invalid ELF header|wrong ELF class|"
    r"file too short|static TLS block|failed to map segment|cannot enable executable stack|cannot load MPI library|"
    r"MPI_Abi_get_version|MPI_Init\w*\(\) failed|C-extensions failed|multiarray failed to import|"
    r"compiled against (API|ABI) version|binary incompatibility"
)


def classified(fault: Exception) -> DlioError:
    """Return an exception as a DlioError. A DlioError is returned as it is. Exceptions of the system, of MPI or of a
    framework become InfrastructureError. So do exceptions for libraries that cannot be loaded. All other exceptions
    become Unexpected.
    """
    if isinstance(fault, DlioError):
        return fault
    if (known := _of_environment(fault) or of_import(fault)) is not None:
        return known
    if isinstance(fault, OSError):
        return InfrastructureError(of_system(fault))
    if isinstance(fault, MemoryError) or type(fault).__module__.partition(".")[0] in _LIBRARIES:
        return InfrastructureError(str(fault) or type(fault).__name__)
    return Unexpected(f"a bug in dlio-hpc, please report it: {type(fault).__name__}: {fault}")


# Folder of this package.
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def of_import(fault: BaseException) -> InfrastructureError | None:
    """Return the error for a package of others that failed while it was imported, such as a package for another version
    of Python in a folder of PYTHONPATH, or that lacks a name there. Return None for other exceptions.
    """
    place, cause = _failed_module(fault), f"{type(fault).__name__}: {' '.join(str(fault).split())}"
    folder = None if place is None else _in_python_path(place)
    if place is None and (lacking := _lacking_module(fault)) is not None:
        place, folder = lacking, _in_python_path(lacking)
        if folder is None:
            return None  # a bug in dlio-hpc is more likely
    if place is None:
        return None
    advice = (
        f"install its package again for {sys.executable}" if folder is None
        else f"PYTHONPATH has the folder {folder}; unset it, or the module that sets it"
    )  # fmt: skip
    return InfrastructureError(f"cannot import {place} ({cause}); {advice}")


def _in_python_path(path: str) -> str | None:
    """Return the folder of PYTHONPATH that has a module; None if there is none. The folder of dlio-hpc is no answer: it
    may be a checkout, with its own Python environment.
    """
    folders = [os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    return next((name for name in folders if path.startswith(f"{name}/") and not _OWN.startswith(f"{name}/")), None)


def _lacking_module(fault: BaseException) -> str | None:
    """Return the path of the module that lacks a name that dlio-hpc uses; None for other exceptions."""
    if isinstance(fault, ImportError):
        return fault.path
    return getattr(fault.obj, "__file__", None) if isinstance(fault, AttributeError) else None


def _failed_module(fault: BaseException) -> str | None:
    """Return the path of the module of others whose code failed while dlio-hpc imported it; None if there is none."""
    place = fault.filename if isinstance(fault, SyntaxError) else None
    trace = fault.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith(_OWN):
            place = fault.filename if isinstance(fault, SyntaxError) else None
        elif code.co_name == "<module>":
            place = code.co_filename
        trace = trace.tb_next
    return None if place is None or place.startswith((_OWN, "<")) else os.path.abspath(place)


def _of_environment(fault: Exception) -> InfrastructureError | None:
    """Return the error for a package or library that is missing or cannot be loaded, and for threads that cannot be
    started. Return None for other exceptions, such as a missing module of dlio-hpc.
    """
    text = " ".join(str(fault).split())
    if isinstance(fault, ModuleNotFoundError):
        return _of_missing_module(fault, text)
    if isinstance(fault, RuntimeError) and "can't start new thread" in text:
        return InfrastructureError(f"{text}: the limit of processes is reached (ulimit -u, or pids.max of the cgroup)")
    is_of_loader = isinstance(fault, (ImportError, RuntimeError, ValueError)) or (
        isinstance(fault, OSError) and fault.errno is None  # of ctypes
    )
    if not is_of_loader or not _UNUSABLE_LIBRARY.search(text):
        return None
    if re.search("mpi", text, re.IGNORECASE):
        return InfrastructureError(
            f"the MPI library cannot be used: {text}; load the site's MPI (module load ... in `setup` of the site "
            "profile), or install one: pip install mpich"
        )
    return InfrastructureError(
        f"a library cannot be used: {text}; load the modules that the package was built with (`setup` of the site "
        "profile), or install the package again"
    )


def _of_missing_module(fault: ModuleNotFoundError, text: str) -> InfrastructureError | None:
    """Return the error for a missing package, or for a part of dlio-hpc that was left out. Return None for other
    modules of dlio-hpc.
    """
    name = fault.name or ""
    package = name.partition(".")[0]
    if name.startswith("dlio_hpc.programs"):
        return InfrastructureError(
            "this installation has no folder dlio_hpc/programs, which analyses programs other than the benchmark; "
            "install dlio-hpc again"
        )
    if package not in _DEPENDENCIES:
        return None
    return InfrastructureError(
        f"{text}: {package} is not installed, or not for the version of {sys.executable}; check `python`, `setup` "
        "and `environment` of the site profile, or install it with pip"
    )


_BY_DESCRIPTOR = re.compile(r"/proc/self/fd/\d+(?P<rest>.*)", re.DOTALL)


def of_system(fault: OSError, path: object = None) -> str:
    """Return a text with the name of the file that an OSError concerns, and the system's description of the error.
    path: name of the file, used if the error has no file name. If the error names the file by way of a folder's
    descriptor (/proc/self/fd/N/NAME), or by a relative path, `path` is the name of that folder.
    """
    cause = fault.strerror or str(fault) or type(fault).__name__
    name = path if _is_nameless(fault) else os.fsdecode(fault.filename)
    if path is not None and (by_descriptor := _BY_DESCRIPTOR.match(str(name))):
        name = f"{path}{by_descriptor['rest']}"
    elif path is not None and not os.path.isabs(str(name)) and os.path.isabs(str(path)):
        is_same = os.path.basename(str(path)) == str(name)  # `path` is the file itself
        name = path if is_same else os.path.join(str(path), str(name))
    return cause if name is None else f"{name}: {cause}"


def _is_nameless(fault: OSError) -> bool:
    """Return whether an OSError names no path. If the error is from a call on a descriptor, its filename may be the
    number of the descriptor.
    """
    return fault.filename is None or isinstance(fault.filename, int)


# Error numbers for a path that does not exist or is not a file. These are mistakes of the user, not faults of the
# system.
ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}


def unreadable(fault: OSError, path: object, absent: type[DlioError] = ConfigError, advice: str = "") -> DlioError:
    """Return the error for a file that cannot be read. If the file does not exist, the error is of class `absent` and
    its message ends with `advice`. Otherwise the error is an InfrastructureError.
    """
    if fault.errno in ABSENT:
        return absent(f"cannot read {of_system(fault, path)}{advice}")
    return InfrastructureError(f"cannot read {of_system(fault, path)}{_remedy(fault, path)}")


def _remedy(fault: OSError, path: object) -> str:
    """Return advice for an OSError: if permission is missing, the owner of the file. Return "" if there is no
    advice.
    """
    if fault.errno != errno.EACCES:
        return ""
    import pwd  # slow import, needed only for this fault

    try:
        owner = pwd.getpwuid(os.stat(str(path)).st_uid).pw_name
    except (OSError, KeyError):
        return ""
    return f"; it belongs to {owner}: ask for permission to read it"


# Number of characters that are kept at the start and at the end of a long message.
_FIRST, _LAST = 3000, 500


def shortened(message: str) -> str:
    """Return the message without control characters. If it is long, replace its middle by the number of omitted
    characters.
    """
    message = printable(message)
    left_out = len(message) - _FIRST - _LAST
    if left_out <= 0:
        return message
    return f"{message[:_FIRST]} ... ({left_out} characters) ... {message[-_LAST:]}"


@contextmanager
def about(path: object, alias: object = None) -> Iterator[None]:
    """Correct the file name in OSErrors that are raised in the `with` block. If an error has no file name, it gets
    `path`. If the file name is `alias`, or a path in `alias`, `alias` is replaced by `path`.
    """
    try:
        yield
    except OSError as fault:
        name = None if _is_nameless(fault) else os.fsdecode(fault.filename)
        if name is None or name == str(alias):
            fault.filename = str(path)
        elif name.startswith(f"{alias}/"):
            fault.filename = f"{path}{name.removeprefix(str(alias))}"
        raise


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Report an exception raised in the `with` block on stderr, and exit with the exit code of the exception. This is
    for programs that run in the job.
    """
    try:
        yield
    except Exception as fault:  # noqa: BLE001 - reported, then the program ends
        sys.exit(reported(fault).exit_code)


def reported(fault: Exception, lead: str = "") -> DlioError:
    """Print an exception on stderr, after the text `lead`, and return it as a DlioError.

    A bug is printed with its traceback. Call this function therefore only while the exception is being handled.
    """
    known = classified(fault)
    if isinstance(known, Unexpected):
        import traceback

        traceback.print_exc()
    print(f"dlio-hpc: {lead}{known}", file=sys.stderr, flush=True)
    return known


def nearest_name(name: str, names: Iterable[str], similar: float = 0.6) -> str | None:
    """Return the name that is most similar to `name`, or None if none is similar. A name with the same letters in
    another order comes first. similar: minimum similarity, from 0 to 1.
    """
    import difflib  # slow import, needed only for wrong names

    lower = {known.lower(): known for known in names}
    exchanged = [known for known in lower if sorted(known) == sorted(name.lower())]
    close = exchanged or difflib.get_close_matches(name.lower(), lower, n=1, cutoff=similar)
    return lower[close[0]] if close else None


def name_hint(name: str, names: Iterable[str], similar: float = 0.6) -> str:
    """Return a suggestion for a message, "did you mean 'NAME'? " with a trailing blank. Return "" if no name is
    similar. similar: as for nearest_name().
    """
    meant = nearest_name(name, names, similar)
    return "" if meant is None else f"did you mean {meant!r}? "
