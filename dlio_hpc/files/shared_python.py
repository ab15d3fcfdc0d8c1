"""Program that checks, before an environment for all users is made, whether other users can use the Python interpreter
that it is made from: `python shared_python.py PREFIX`. It uses only the standard library.

An environment of venv has no interpreter and no standard library of its own. It has links to the interpreter and the
library from which it was made. If the interpreter is below a home that only its owner may enter, such as root's, all
other users get "Permission denied".
"""

import os
import pwd
import stat
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def obstacle(prefix: str) -> str | None:
    """Return the reason why other users cannot use the interpreter that runs this program. Return None if they can use
    the interpreter. Return None also if they cannot enter the folder `prefix`, because the installation is then only
    for its owner.
    """
    if any(_is_closed(folder) for folder in Path(os.path.abspath(prefix)).parents if folder.exists()):
        return None
    for path in _used():
        for place in _places(path):
            if _is_closed(place):
                return f"{place} ({stat.filemode(os.stat(place).st_mode)})"
    return None


def interpreter() -> str:
    """Return the path of the interpreter that an environment has a link to, if this interpreter makes the
    environment.
    """
    return os.path.abspath(getattr(sys, "_base_executable", sys.executable))


def _used() -> Iterator[str]:
    """Yield the files of the interpreter: its program, its standard library and the libraries that it has loaded."""
    yield interpreter()
    yield sysconfig.get_path("stdlib")
    yield sysconfig.get_path("platstdlib")
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if len(line.split(maxsplit=5)) == 6}
        yield from sorted(path for path in paths if os.path.isfile(path))


def _places(path: str) -> Iterator[Path]:
    """Yield the folders on the way to `path`, from the root down, and `path` itself. Links are yielded in each form: as
    written, at each step of their resolution, and fully resolved.
    """
    names = [path]
    while os.path.islink(names[-1]) and len(names) < 40:  # as many as the kernel follows
        names.append(os.path.normpath(os.path.join(os.path.dirname(names[-1]), os.readlink(names[-1]))))
    for name in dict.fromkeys((*names, os.path.realpath(path))):
        yield from (*reversed(Path(name).parents), Path(name))


def _is_closed(place: Path) -> bool:
    """Return whether the owner keeps others from entering a folder or reading a file. A folder is also regarded as open
    if a group other than the owner's own may enter it, because such a group may contain the users of a site.
    """
    status = os.stat(place)
    needed = stat.S_IXOTH if stat.S_ISDIR(status.st_mode) else stat.S_IROTH
    if status.st_mode & needed:
        return False
    try:
        own_group = pwd.getpwuid(status.st_uid).pw_gid
    except KeyError:
        own_group = status.st_gid
    return not status.st_mode & needed << 3 or status.st_gid == own_group


def main() -> None:
    """Run the program. It exits with 2 if other users cannot use the interpreter."""
    prefix = sys.argv[1]
    closed = obstacle(prefix)
    if closed is not None:
        print(
            f"Other users cannot use {interpreter()}, from which the environment in {prefix} would be made: {closed} "
            "is closed to them. Name an interpreter that all users can use: add PYTHON=/usr/bin/python3 to the command",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    main()
