"""Interface to the command lfs. Do not call lfs for a path that is not on Lustre: some versions leave files behind
there. Success is judged only by the exit code, because messages differ from version to version.
"""

import errno
import re
import shlex
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from dlio_hpc.base import command, serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.config import lustre_layout
from dlio_hpc.config.lustre_layout import Layout, Version
from dlio_hpc.files.quotas import Quota


class LayoutComponent(Struct, frozen=True):
    """Component of an actual layout; a plain layout has one component. end: offset in the file at which the component
    ends; None for the end of the file. first: number of the target that holds the first stripe; -1 for any target.
    targets: numbers of the targets that hold the stripes of a file. `targets` is empty for the layout of a folder, and
    for a component to which nothing has been written.
    """

    end: int | None
    stripe_count: int
    stripe_size: int
    pattern: str
    pool: str | None
    first: int
    targets: tuple[int, ...] = ()


class DirectoryLayout(Struct, frozen=True):
    """Actual layout of a directory on the metadata targets, or the default layout of its new subfolders. count: number
    of targets, with 0 for a directory without stripes and -1 for a default of all targets. index: first target; -1 if
    Lustre chooses it. hash: hash function of names; "none" if there is none. inherit: for a default layout, number of
    levels of subfolders that get it, with -1 for all levels; otherwise None.
    """

    count: int
    index: int
    hash: str
    inherit: int | None = None


LayoutComponents = tuple[LayoutComponent, ...]
PERMISSION = (
    "Only root may place directories on metadata targets, unless mdt.*.enable_remote_dir_gid on the servers is -1 or "
    "the number of your group; ask the administrators, or remove site.layout.directories"
)
# Value of Target.flags for a target that does not answer.
DOWN = "down"
_POOL = re.compile(r"^([ -]*(?:lmm_)?pool:[ ]+)([\w.-]+)[ ]*$", re.MULTILINE)
# Exit code ESRCH: the file system has no quotas of this kind.
_OFF = 3


class Target(Struct, frozen=True):
    """Object storage target (OST) or metadata target (MDT). flags: letters of lfs-df(1): D degraded, R read-only, N no
    new files, S no space, I no inodes; or DOWN.
    """

    number: int
    flags: str


def version() -> Version:
    """Return the version of the Lustre client. Raise CommandMissing if lfs is not installed."""
    answer = command.ask("lfs", "--version")
    match = re.match(r"lfs (\d+)\.(\d+)(?:\.(\d+))?", answer.out)
    if answer.code or match is None:
        raise command.unexplained("lfs --version", answer)
    return tuple(int(part) for part in match.groups() if part is not None)


def check_version(asked: Layout, client: Version) -> None:
    """Raise ConfigError if the Lustre client is too old for the requested layout."""
    for feature, least in lustre_layout.needs(asked):
        if client < least:
            wanted, have = (".".join(map(str, number)) for number in (least, client))
            raise ConfigError(f"layout: {feature} needs a Lustre client of {wanted} or newer, but the client is {have}")


def command_line(folder: str, asked: Layout) -> str:
    """Return the shell commands that make_folder() and set_layout() run."""
    return " && ".join(map(shlex.join, lustre_layout.commands(asked, folder)))


def make_folder(folder: Path, asked: Layout) -> None:
    """Create the folder on the requested metadata targets, unless it exists. Its parent must exist."""
    for arguments in lustre_layout.commands(asked, str(folder)):
        if arguments[1] == "mkdir" and not folder.exists():
            _run(arguments, unless=errno.EEXIST)


def set_layout(folder: Path, asked: Layout) -> None:
    """Set the layouts that new files and new subfolders in `folder` get. Existing ones keep their layouts."""
    for arguments in lustre_layout.commands(asked, str(folder)):
        if arguments[1] != "mkdir":
            _run(arguments)


def _run(arguments: list[str], unless: int = 0) -> None:
    """Run a command that sets a layout. Raise InfrastructureError if it fails, except with the exit code `unless`."""
    answer = command.ask(*arguments)
    if answer.code in {0, unless}:
        return
    is_refused = answer.code == errno.EPERM and arguments[1] != "setstripe"
    raise InfrastructureError(f"{shlex.join(arguments)}: {answer.text}{f'. {PERMISSION}' if is_refused else ''}")


def directory_layout(folder: Path | str) -> DirectoryLayout:
    """Return the layout of a directory on the metadata targets."""
    return _getdirstripe(str(folder))


def default_directory_layout(folder: Path | str) -> DirectoryLayout:
    """Return the layout that new subfolders of a directory get."""
    return _getdirstripe("-D", str(folder))


def _getdirstripe(*arguments: str) -> DirectoryLayout:
    """Run lfs-getdirstripe(1). Its output is no valid YAML, even with the option -y: a table of stripes follows the
    keys. Only the keys are parsed.
    """
    answer = command.ask("lfs", "getdirstripe", *arguments)
    values = dict(re.findall(r"\blmv_(\w+): *(\S+)", answer.out))
    try:
        if answer.code:
            raise command.unexplained(f"lfs getdirstripe {arguments[-1]}", answer)
        inherit = int(values["max_inherit"]) if "max_inherit" in values else None
        name = values.get("hash_type", "none").partition(",")[0]
        return DirectoryLayout(int(values["stripe_count"]), int(values["stripe_offset"]), name, inherit)
    except (KeyError, ValueError) as fault:
        raise command.unexplained(f"lfs getdirstripe {arguments[-1]}", answer) from fault


def folder_layout(folder: Path) -> LayoutComponents:
    """Return the layout that new files in `folder` get."""
    return _getstripe("-d", str(folder))


def file_layout(path: str) -> LayoutComponents:
    """Return the layout of a file."""
    return _getstripe(path)


def _getstripe(*arguments: str) -> LayoutComponents:
    answer = command.ask("lfs", "getstripe", *arguments[:-1], "-y", arguments[-1])
    if answer.code:
        raise command.unexplained(f"lfs getstripe {arguments[-1]}", answer)
    return parse(answer.out, f"lfs getstripe {arguments[-1]}")


def parse(text: str, source: str) -> LayoutComponents:
    """Parse the YAML that lfs-getstripe(1) prints. In the layout of a file, keys begin with lmm_; in the layout of a
    folder, they do not. Since version 2.16 the components are a list; earlier versions print a key per component
    (component0, component1). The name of a pool is always taken as text, although lfs prints names such as 1e5 and null
    without quotes.
    """
    data = serialization.parse_yaml(_POOL.sub(r'\1"\2"', text), source)
    if not isinstance(data, dict):
        raise InfrastructureError(f"{source}: {str(data)[:200]!r} is not a layout")
    if "lcm_layout_gen" not in data:
        return (_part(data, None, source),)
    parts = data.get("components") or [value for key, value in data.items() if re.fullmatch(r"component\d+", str(key))]
    try:
        return tuple(_part(part["sub_layout"], part["lcme_extent.e_end"], source) for part in parts)
    except (KeyError, TypeError) as fault:
        raise InfrastructureError(f"{source}: the layout cannot be parsed: {fault}") from fault


def _part(data: dict[str, Any], end: object, source: str) -> LayoutComponent:
    try:
        values = {str(key).removeprefix("lmm_"): value for key, value in data.items()}
        objects = values.get("objects") or []
        return LayoutComponent(
            end=end if isinstance(end, int) else None,
            stripe_count=int(values["stripe_count"]),
            stripe_size=int(values.get("stripe_size", 0)),
            pattern=str(values.get("pattern", "raid0")),
            pool=str(values["pool"]) if values.get("pool") else None,
            first=int(values.get("stripe_offset", -1)),
            targets=tuple(int(stripe["l_ost_idx"]) for stripe in objects),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        raise InfrastructureError(f"{source}: the layout cannot be parsed: {fault}") from fault


def targets(path: Path, kind: Literal["OST", "MDT"] = "OST") -> list[Target]:
    """Return the storage targets (OST) or metadata targets (MDT) of the file system that holds `path`, without inactive
    targets. For a target that does not answer, lfs-df(1) prints the reason and then ends with an error code, which is
    ignored.
    """
    answer = command.ask("lfs", "df", str(path))
    rows = re.findall(rf"^\S+_UUID +\d+ +\d+ +\d+ .*\[{kind}:(\d+)\] ?([A-Z?]*)", answer.out, re.MULTILINE)
    if not rows:
        raise command.unexplained(f"lfs df {path}", answer)
    down = re.findall(rf"^\S+-{kind}([0-9a-fA-F]{{4}})_UUID +: (?!inactive)", answer.out, re.MULTILINE)
    up = [Target(int(index), flags) for index, flags in rows]
    return [*up, *(Target(int(number, 16), DOWN) for number in down)]


def project(folder: Path) -> str | None:
    """Return the project id of a folder, or None if it has none."""
    answer = command.ask("lfs", "project", "-d", str(folder))
    number = next(iter(answer.out.split()), "")
    return number if not answer.code and number.isdigit() and number != "0" else None


def pool_size(fsname: str, pool: str) -> int:
    """Return the number of targets in a pool. Raise ConfigError if the pool does not exist."""
    answer = command.ask("lfs", "pool_list", f"{fsname}.{pool}")
    if answer.code:
        known = ", ".join(line.partition(".")[2] for line in command.ask("lfs", "pool_list", fsname).lines[1:])
        raise ConfigError(f"layout: file system {fsname} has no pool {pool!r}; existing pools: {known or 'none'}")
    return len([line for line in answer.lines[1:] if line.strip()])


def quota(whose: str, name: str, path: Path) -> Quota | None:
    """Return the quota of a user (`whose` is -u), a group (-g) or a project (-p). Return None if the file system has no
    quotas, or if the output of lfs-quota(1) has fewer fields than expected.
    """
    answer = command.ask("lfs", "quota", "-q", whose, name, str(path))
    if answer.code == _OFF:
        return None
    if answer.code:
        raise command.unexplained(f"lfs quota {whose} {name} {path}", answer)
    rows = [line.split() for line in answer.lines]
    fields = [field for row in rows[:2] for field in row][1:9]
    if len(fields) < 8:
        return None
    numbers = [int(re.sub(r"\D", "", field) or 0) for field in fields]
    used, soft, hard, _, files, soft_files, hard_files, _ = numbers
    return Quota(used * 1024, (hard or soft) * 1024, files, hard_files or soft_files)
