"""A stand-in for Lustre's lfs(1). It keeps layouts in a folder and touches no file system.

Formats, checks and codes follow lustre/utils/lfs.c and liblustreapi.c of 2.12, 2.15 and 2.16. As in Lustre, a new
directory has the default of its parent, and one that is older than its parent's default keeps its own. Anything that
the stand-in does not know fails with code 70, so that no test relies on it.
"""

import fcntl
import getopt
import json
import os
import pwd
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

Lie = Literal["directory", "files", "wrapper", "mdts"]

FS = "lus"
_USAGE, _UNKNOWN = 4, 70
_EPERM, _ENOENT, _ESRCH, _EEXIST, _ENODEV, _ENOTDIR, _EINVAL, _ENOTTY, _EFBIG, _EOPNOTSUPP = (
    1, 2, 3, 17, 19, 20, 22, 25, 27, 95,
)  # fmt: skip
_HASHES = ("none", "all_char", "fnv_1a_64", "crush")
_MOST_LEVELS = 250
_KIB, _64KIB, _4GIB = 1024, 1 << 16, 1 << 32
_MOST_STRIPES, _MOST_PER_TARGET, _LONGEST_POOL = 2000, 32, 15

_SCRIPT = """\
#!{python} -IS
import sys
from pathlib import Path

sys.path.insert(0, {root!r})
from tests.support.standins.lfs import main

sys.exit(main(Path({state!r})))
"""


def install(
    folder: Path,
    state: Path,
    *,
    mount: Path,
    osts: int = 8,
    version: str = "2.15.5",
    pools: Sequence[str] | Mapping[str, Sequence[int]] = ("flash",),
    lies: Lie | None = None,
    degraded: Sequence[int] = (),
    inactive: Sequence[int] = (),
    free_kib: int = 1 << 30,
    quota: tuple[int, int] | None = None,
    mdts: int = 1,
    anyone: bool = True,
) -> None:
    """Write the command `lfs` into `folder`. Paths below `mount` are on its Lustre; it logs calls in `state`/lfs.jsonl.

    pools: names, each of all targets, or names and their targets. free_kib: of each target. quota: limit and use in
    KiB, limit 0 for none; None where quotas are off. lies: the way in which a site does not do as it is asked.
    lies=directory: setstripe returns 0 and changes nothing. lies=files: directories show the requested layout, files
    have one stripe. lies=wrapper: the site has its own lfs, where all targets become 450 or as many as there are, in
    the pool "capacity". lies=mdts: mkdir returns 0 and makes a directory on one MDT. anyone: whether the servers let
    users other than root place directories (mdt.*.enable_remote_dir_gid=-1); the caller counts as such a user.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state.mkdir(parents=True, exist_ok=True)
    members = pools if isinstance(pools, Mapping) else {name: range(osts) for name in pools}
    if lies == "wrapper":
        members = {**members, "capacity": range(osts)}
    policy = {
        "mount": str(mount.resolve()), "osts": osts, "version": version, "lies": lies, "degraded": list(degraded),
        "inactive": list(inactive), "free_kib": free_kib, "quota": quota,
        "mdts": mdts, "anyone": anyone,
        "pools": {name: list(targets) for name, targets in members.items()},
    }  # fmt: skip
    (state / "policy.json").write_text(json.dumps(policy))
    command = folder / "lfs"
    root = Path(__file__).resolve().parents[3]
    command.write_text(_SCRIPT.format(python=sys.executable, root=str(root), state=str(state.resolve())))
    command.chmod(0o755)


def calls(state: Path) -> list[list[str]]:
    """Return the arguments of every call so far."""
    log = state / "lfs.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


class Refused(Exception):
    """A message for stderr, and the exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Policy:
    mount: str
    osts: int
    version: str
    pools: dict[str, list[int]]
    lies: Lie | None
    degraded: list[int]
    inactive: list[int]
    free_kib: int
    quota: list[int] | None
    mdts: int
    anyone: bool

    @property
    def number(self) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", self.version)[:2]))

    def before(self, *version: int) -> bool:
        return self.number < version

    @property
    def default_size(self) -> int:
        return (1 if self.before(2, 16) else 4) << 20

    def has(self, path: str) -> bool:
        return Path(path) == Path(self.mount) or Path(self.mount) in Path(path).parents

    def usable(self, pool: str | None) -> list[int]:
        """The targets a file in the pool can lie on; a pool nobody knows does not narrow them."""
        return self.pools.get(pool or "") or list(range(self.osts))


@dataclass(frozen=True)
class Part:
    """A component, or all of a plain layout. None: not given. count -1: all targets; end None: the end of the file."""

    end: int | None = None
    count: int | None = None
    size: int | None = None
    index: int | None = None
    pool: str | None = None
    mdt: bool = False
    overstripe: bool = False


@dataclass(frozen=True)
class Layout:
    parts: tuple[Part, ...] = (Part(),)
    composite: bool = False


@dataclass
class Store:
    """The defaults of directories and the layouts of files, by path. A path with a new inode is a new file. folders:
    where directories are on MDTs, and the defaults for their subfolders.
    """

    directories: dict[str, Any] = field(default_factory=dict)
    folders: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)
    target: int = 0
    object: int = 1

    def forget_deleted(self) -> None:
        for kept in (self.directories, self.folders, self.files):
            for path in [path for path, entry in kept.items() if _inode(path) != entry["inode"]]:
                del kept[path]


@contextmanager
def _opened(folder: Path) -> Iterator[Store]:
    """Open the store for one process at a time. It is written back unless the call fails."""
    path = folder / "layouts.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store = Store(**json.loads(path.read_text())) if path.exists() else Store()
        store.forget_deleted()
        yield store
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(store)))
        new.replace(path)


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return None


def main(state: Path, arguments: Sequence[str] | None = None) -> int:
    """Run one call of lfs, with the arguments given or those of this process. Return the exit code."""
    command = list(sys.argv[1:] if arguments is None else arguments)
    with (state / "lfs.jsonl").open("a") as log:
        log.write(json.dumps(command) + "\n")
    policy = Policy(**json.loads((state / "policy.json").read_text()))
    try:
        with _opened(state) as store:
            return _commands(policy, store, command)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return refused.code


def _commands(policy: Policy, store: Store, command: list[str]) -> int:
    commands = {
        "getstripe": _getstripe,
        "getdirstripe": _getdirstripe,
        "df": _df,
        "pool_list": _pool_list,
        "quota": _quota,
    }
    name, rest = (command[0], command[1:]) if command else ("", [])
    if name == "--version":
        print("lfs", policy.version)
    elif name == "setstripe":
        Setstripe(policy, store, rest).run()
    elif name in {"mkdir", "setdirstripe"}:
        _setdirstripe(policy, store, name, rest)
    elif name in commands:
        commands[name](policy, store, rest)
    else:
        _unknown(name)
    return 0


def _options(who: str, arguments: list[str], short: str) -> tuple[list[tuple[str, str]], list[str]]:
    try:
        return getopt.gnu_getopt(arguments, short)
    except getopt.GetoptError as error:
        raise Refused(_USAGE, f"{who}: unrecognized option '-{error.opt}'") from error


def _unknown(what: str) -> NoReturn:
    raise Refused(_UNKNOWN, f"the stand-in for lfs does not know {what}")


def _real(path: str) -> str:
    if not Path(path).exists():
        raise Refused(_ENOENT, f"error: invalid path '{path}': No such file or directory")
    return os.path.realpath(path)


class Setstripe:
    """lfs_setstripe_internal() of lfs.c: options in their order; each -E closes the component before it."""

    def __init__(self, policy: Policy, store: Store, arguments: list[str]) -> None:
        self.policy = policy
        self.store = store
        self.who = "lfs setstripe setstripe" if policy.before(2, 15) else "lfs setstripe"
        self.layout: list[Part] = []
        self.part = Part()
        self.composite = False
        short = "c:i:p:S:" + ("" if policy.before(2, 10) else "E:") + ("" if policy.before(2, 11) else "L:y:")
        short += "" if policy.before(2, 13) else "C:"
        options, self.paths = _options(self.who, arguments, short)
        for option, value in options:
            self._take(option, value)

    def run(self) -> None:
        if len(self.paths) != 1:
            raise Refused(_USAGE, f"{self.who}: FILE must be specified")
        self._set(self.paths[0], self._finished())

    def _take(self, option: str, value: str) -> None:
        if option in {"-c", "-C"}:
            least = -_MOST_PER_TARGET if option == "-C" and not self.policy.before(2, 16) else -1
            count = self._number(value, "stripe count", least, _MOST_STRIPES) or None
            self.part = replace(self.part, count=count, overstripe=option == "-C")
        elif option == "-S":
            self.part = replace(self.part, size=self._size(value))
        elif option == "-i":
            index = self._number(value, "stripe offset", -1, 65503)
            self.part = replace(self.part, index=None if index == -1 else index)
        elif option == "-p":
            if len(value) > _LONGEST_POOL:
                raise Refused(_EINVAL, f"lfs setstripe: Invalid Poolname '{value}': Invalid argument (22)")
            self.part = replace(self.part, pool=value or None)
        elif option == "-E":
            self._component(value)
        else:
            self._pattern(value)

    def _number(self, text: str, what: str, least: int, most: int) -> int:
        try:
            number = int(text, 0)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise Refused(_USAGE, f"{self.who}: invalid {what} '{text}'")
        return number

    def _bytes(self, text: str, what: str) -> int:
        """Parse a size (llapi_parse_size()). Bare numbers below 4096 are KiB from 2.15 on."""
        match = re.fullmatch(r"(\d+)([kmgt]?)", text, re.IGNORECASE)
        if not match:
            raise Refused(_USAGE, f"{self.who}: invalid {what} '{text}'")
        value: int = int(match[1]) * _KIB ** " kmgt".index(match[2].lower() or " ")
        return value * _KIB if value < 4096 and not self.policy.before(2, 15) else value

    def _size(self, text: str) -> int | None:
        size = self._bytes(text, "stripe size")
        if size % _64KIB:
            raise Refused(_USAGE, f"{self.who}: invalid stripe size '{text}'")
        if size >= _4GIB:
            raise Refused(_EINVAL, f"lfs setstripe: error: stripe size '{size}' over 4GB limit: Invalid argument (22)")
        return size or None

    def _component(self, text: str) -> None:
        if self.composite:
            self._close()
            # The options carry over, and the size of a component on the metadata server is its end.
            last = self.layout[-1]
            self.part = Part(count=last.count, size=last.end if last.mdt else last.size, pool=last.pool)
        self.composite = True
        end = None if text.startswith(("-1", "EOF", "eof")) else self._bytes(text, "component end")
        if end is not None and end % _64KIB:
            raise Refused(_USAGE, f"{self.who}: invalid component end '{text}'")
        self.part = replace(self.part, end=end)

    def _close(self) -> None:
        part = self.part
        if part.mdt and (part.count or part.index is not None or part.pool or part.size not in {None, part.end}):
            raise Refused(_EINVAL, "Option can't be specified with Data-on-MDT component\nerror: lfs: invalid layout")
        self.layout.append(part)

    def _pattern(self, name: str) -> None:
        if name not in {"mdt", "raid0"} or (name == "mdt" and self.layout):
            raise Refused(_EINVAL, f"error: layout '{name}' is unknown, or not of the first component")
        if name == "mdt" and self.composite and (self.part.end or _4GIB) > 1 << 30:
            raise Refused(_EFBIG, "error: 'mdt' layout size is too big")
        self.part = replace(self.part, mdt=name == "mdt")

    def _finished(self) -> Layout:
        if not self.composite:
            if self.part.mdt:
                raise Refused(_EINVAL, "lfs setstripe: Invalid pattern: '-L mdt', must be specified with -E")
            return Layout((self.part,))
        self._close()
        start: int | None = 0
        for part in self.layout:
            if start is None or (part.end is not None and part.end <= start):
                raise Refused(1, "Invalid layout: Component end is before end of previous component")
            if part.end and part.size and part.end % part.size:
                raise Refused(1, "Invalid layout: The component end must be aligned by the stripe size")
            start = part.end
        return Layout(tuple(self.layout), composite=True)

    def _set(self, path: str, asked: Layout) -> None:
        real = _real(path)
        if not self.policy.has(real):
            raise Refused(_ENOTTY, f"lfs setstripe: setstripe error for '{path}': Inappropriate ioctl for device")
        if not Path(path).is_dir():
            _unknown("setstripe of files")
        self._check_targets(path, asked)
        if self.policy.lies != "directory":
            self._default(real, self._as_the_site_does(asked))

    def _check_targets(self, path: str, asked: Layout) -> None:
        """Check the targets. 2.15 accepts an unknown pool: neither its lfs nor its lod_lov.c checks it."""
        for part in asked.parts:
            if part.index is not None and part.index not in self.policy.usable(part.pool):
                raise Refused(_EINVAL, f"lfs setstripe: setstripe error for '{path}': Invalid argument")
            known = part.pool is None or part.pool in self.policy.pools or asked.composite
            if not known and not (2, 15) <= self.policy.number < (2, 16):
                raise Refused(_EINVAL, f"lfs setstripe: pool '{FS}.{part.pool}' does not exist")

    def _default(self, directory: str, asked: Layout) -> None:
        """Set the new default of the directory. Files and directories below it keep theirs."""
        for below, folders, files in os.walk(directory):
            for name in files:
                _file(self.policy, self.store, f"{below}/{name}")
            for path in (f"{below}/{name}" for name in folders):
                if path not in self.store.directories:
                    _keep_directory(self.store, path, _default_of(self.policy, self.store, path))
        _keep_directory(self.store, directory, asked)

    def _as_the_site_does(self, asked: Layout) -> Layout:
        if self.policy.lies != "wrapper":
            return asked
        parts = [replace(part, pool=None if part.mdt else "capacity") for part in asked.parts]
        most = min(450, self.policy.osts)
        return replace(asked, parts=tuple(replace(part, count=most) if part.count == -1 else part for part in parts))


def _keep_directory(store: Store, path: str, default: Layout | None) -> None:
    store.directories[path] = {"inode": _inode(path), "default": default and asdict(default)}


def _default_of(policy: Policy, store: Store, directory: str) -> Layout | None:
    """Return the default of the directory or, if its default is not known, of the nearest one above it."""
    for path in (directory, *map(str, Path(directory).parents)):
        if path in store.directories:
            kept = store.directories[path]["default"]
            return kept and Layout(tuple(Part(**part) for part in kept["parts"]), kept["composite"])
        if path == policy.mount:
            break
    return None


def _file(policy: Policy, store: Store, path: str) -> Any:
    """Return the layout that the file got when it was first seen. Components get objects once data reaches them."""
    if path not in store.files:
        default = _default_of(policy, store, str(Path(path).parent)) or Layout()
        if policy.lies == "files":
            default = Layout((Part(count=1, size=default.parts[0].size),))
        parts = [asdict(part) | {"objects": None} for part in default.parts]
        store.files[path] = {"inode": _inode(path), "parts": parts, "composite": default.composite}
    kept = store.files[path]
    begin, size = 0, Path(path).lstat().st_size
    for part in kept["parts"]:
        if part["objects"] is None and (begin == 0 or begin < size):
            objects = _objects(policy, store, Part(**{k: v for k, v in part.items() if k != "objects"}))
            part["objects"] = objects
            # lod_qos.c: where there are targets enough, the file is not overstriped after all.
            targets = [target for target, _ in objects]
            part["overstripe"] = part["overstripe"] and len(set(targets)) < len(targets)
        begin = part["end"] or 0
    return kept


def _objects(policy: Policy, store: Store, part: Part) -> list[tuple[int, int]]:
    """Return targets and object numbers: from the index on, or from where the last file ended."""
    if part.mdt:
        return []
    targets = policy.usable(part.pool)
    count = 1 if part.count is None else part.count
    if count < 0:
        count *= -len(targets)
    if not part.overstripe:
        count = min(count, len(targets))
    first = store.target if part.index is None else targets.index(part.index)
    if part.index is None:
        store.target = first + count
    store.object += count
    return [(targets[(first + i) % len(targets)], store.object - count + i) for i in range(count)]


def _getstripe(policy: Policy, store: Store, arguments: list[str]) -> None:
    options, paths = _options("lfs", arguments, "dq" if policy.before(2, 11) else "dqy")
    names = {option for option, _ in options}
    if "-y" not in names or len(paths) != 1:
        _unknown("getstripe without -y, or of several paths")
    (path,), real = paths, _real(paths[0])
    if not policy.has(real):
        message = f"lfs getstripe: cb_getstripe: '{path}' not on a Lustre fs?: Inappropriate ioctl for device (25)"
        raise Refused(_ENOTTY, f"{message}\nerror: getstripe failed for {path}.")
    is_file = not Path(path).is_dir()
    if "-d" not in names and not is_file:
        _unknown("getstripe of what is in a directory")
    default = None if is_file else _default_of(policy, store, real)
    kept = _file(policy, store, real) if is_file else asdict(default or Layout())
    _print(policy, kept["parts"], kept["composite"], is_file)


def _print(policy: Policy, parts: Any, composite: bool, is_file: bool) -> None:
    """Print the components: a mapping each before 2.16, a list since."""
    old, begin = policy.before(2, 16), 0
    if composite:
        started = sum(part.get("objects") is not None for part in parts)
        for name, value in (("lcm_layout_gen", started), ("lcm_mirror_count", 1), ("lcm_entry_count", len(parts))):
            print(f"{'  ' * old}{name + ':':<18} {value}")
        print("components:\n" * (not old), end="")
    for number, part in enumerate(parts):
        if composite:
            print(f"  component{number}:\n    " if old else "  - ", end="")
            print(f"lcme_id:             {number + 1 if is_file else 'N/A'}")
            print(f"    lcme_mirror_id:      {0 if is_file else 'N/A'}")
            print(f"    lcme_flags:          {0 if part.get('objects') is None else 'init'}")
            print(f"    lcme_extent.e_start: {begin}\n    lcme_extent.e_end:   {part['end'] or 'EOF'}\n    sub_layout:")
        _print_stripes(policy, part, "      " * composite, is_file)
        print("\n" * old, end="")
        begin = part["end"] or 0


def _print_stripes(policy: Policy, part: Any, indent: str, is_file: bool) -> None:
    """Print the stripes. Without a default, a directory shows the file system's values and pattern 0
    (lov_dump_user_lmm_header()).
    """
    objects, mdt = part.get("objects"), part["mdt"]
    first = part["index"] if not is_file else None if objects is None else (objects or [[0]])[0][0]
    pattern = "mdt" if mdt else "raid0" + ",overstriped" * part["overstripe"]
    values = {
        "stripe_count": len(objects) if objects is not None else 0 if mdt else part["count"] or 1,
        "stripe_size": (part["end"] if mdt else part["size"]) or policy.default_size,
        "pattern": pattern if is_file or part != asdict(Part()) else 0,
        **({"layout_gen": 0} if is_file else {}),
        "stripe_offset": -1 if first is None else first,
        **({"pool": part["pool"]} if part["pool"] else {}),
    }
    lmm = "lmm_" if is_file else ""
    for name, value in values.items():
        print(f"{indent}{lmm + name + ':':<{14 + len(lmm)}} {value}")
    if objects:
        print(f"{indent}lmm_objects:")
    for target, number in objects or []:
        print(f"      - l_ost_idx: {target}\n        l_fid:     {0x100000000 + (target << 16):#x}:{number:#x}:0x0")


def _setdirstripe(policy: Policy, store: Store, name: str, arguments: list[str]) -> None:
    """lfs_setdirstripe() of lfs.c. Only with -D, an existing directory is changed."""
    arguments = ["-X" if word == "--max-inherit" else word for word in arguments]
    options, paths = _options("lfs", arguments, "c:Di:H:" + ("" if policy.before(2, 15) else "X:"))
    known = dict(options)
    if len(paths) != 1:
        raise Refused(_USAGE, f"lfs {name}: DIR must be specified")
    (path,) = paths
    # The options are checked in lfs_setdirstripe(), with CMD_HELP (4) as result.
    count = _whole(known.get("-c", "0" if "-i" in known else "1"), -1, _MOST_STRIPES, "lfs: invalid stripe count")
    index = _whole(known.get("-i", "-1"), -1, 65503, f"lfs {name}: invalid MDT target(s)")
    levels = _whole(
        known.get("-X", "-1" if count in {0, 1} else "3"), -2, _MOST_LEVELS, f"lfs {name}: invalid max-inherit"
    )
    wanted = known.get("-H", "none")
    if "-H" in known and wanted not in (_HASHES[1:3] if policy.before(2, 14) else _HASHES[1:]):
        raise Refused(_USAGE, f"lfs {name}: bad stripe hash type '{wanted}'")
    layout = {"count": count, "index": index, "hash": wanted}
    what = f"set default stripe on dir '{path}'" if "-D" in known else f"create dir '{path}'"
    error = _placed(policy, path, index, is_default="-D" in known)
    if error:
        kind = "default dirstripe" if "-D" in known else "dirstripe"
        text = "stripe already set" if error == _EEXIST else os.strerror(error)
        message = f"{kind} error on '{path}': {text}\nlfs setdirstripe: cannot {what}: {os.strerror(error)}"
        raise Refused(error, message)
    real = os.path.realpath(path)
    if "-D" in known:
        for below, folders, _ in os.walk(real):
            for one in folders:
                _folder(policy, store, f"{below}/{one}")
        _folder(policy, store, real)["default"] = layout | {"inherit": levels}
    else:
        Path(real).mkdir()
        asked = {"count": 0, "index": index, "hash": wanted} if policy.lies == "mdts" else layout
        # lod_object.c, lod_ah_init(): a directory of "-c 1" keeps its subdirectories on its own MDT. One of more
        # stripes does not inherit the default of its parent.
        made = _on_mdts(policy, asked, is_given=True)
        default = made | {"count": 1, "inherit": levels} if count in {0, 1} else None
        store.folders[real] = {"inode": _inode(real), "layout": made, "default": default}


def _whole(text: str, least: int, most: int, message: str) -> int:
    if not re.fullmatch(r"-?\d+", text) or not least <= int(text) <= most:
        raise Refused(_USAGE, f"{message} '{text}'")
    return int(text)


def _placed(policy: Policy, path: str, index: int, is_default: bool) -> int:
    """Return the error number of a call that places a directory on MDTs; 0 if there is none. In the order of 2.15:
    llapi_search_fsname() in verify_dir_param() of liblustreapi.c, lmv_create() of lmv_obd.c (no such MDT), mdt_create()
    or mdt_reint_setattr() of mdt_reint.c (EPERM without the capability CAP_SYS_ADMIN unless enable_remote_dir_gid is -1
    or the user's group), then the lookup of the name.
    """
    where = Path(path) if is_default else Path(path).parent
    if not where.exists():
        return _ENOENT
    if not policy.has(os.path.realpath(where)):
        return _ENODEV
    if index >= policy.mdts and not is_default:
        return _ENODEV
    if not policy.anyone:
        return _EPERM
    return 0 if is_default else _EEXIST if os.path.lexists(path) else 0


def _on_mdts(policy: Policy, layout: dict[str, Any], is_given: bool) -> dict[str, Any]:
    """Return the layout that a new directory gets, by lod_ah_init() of lod_object.c: no more stripes than there are
    MDTs, without an error; a directory of one stripe is a plain one, unless it was created by lfs mkdir -c 1.
    """
    count = policy.mdts if layout["count"] == -1 else layout["count"]
    if count > policy.mdts:
        count = policy.mdts if policy.mdts > 1 else 0
    count = 0 if count == 1 and not is_given else count
    name = "none" if not count else layout["hash"] if layout["hash"] != "none" else "crush"
    return {"count": count, "index": max(layout["index"], 0), "hash": name}


def _folder(policy: Policy, store: Store, path: str) -> Any:
    """Return the entry of a directory. A directory that was made by mkdir(1) gets the default of its parent, and this
    default for its own subfolders with a level less (lod_striping_from_default(), lmv_inherit_next()).
    """
    if path not in store.folders:
        above = _folder(policy, store, str(Path(path).parent))["default"] if path != policy.mount else None
        made, default = {"count": 0, "index": 0, "hash": "none"}, None
        if above is not None and above["inherit"] != 0:
            made = _on_mdts(policy, above, is_given=False)
            if above["inherit"] != 1:
                default = above | {"inherit": max(above["inherit"] - 1, -1)}
        store.folders[path] = {"inode": _inode(path), "layout": made, "default": default}
    return store.folders[path]


def _getdirstripe(policy: Policy, store: Store, arguments: list[str]) -> None:
    """lfs_getdirstripe() of lfs.c, lmv_dump_user_lmm() of liblustreapi.c. The table of stripes follows with -y, too."""
    options, paths = _options("lfs", arguments, "Dy")
    names = {option for option, _ in options}
    if len(paths) != 1:
        _unknown("getdirstripe of several paths")
    (path,), real = paths, _real(paths[0])
    if not policy.has(real):
        message = f"lfs getdirstripe: cb_getstripe: '{path}' not on a Lustre fs?: Inappropriate ioctl for device (25)"
        raise Refused(_ENOTTY, f"{message}\nerror: getdirstripe failed for {path}.")
    if not Path(real).is_dir():
        raise Refused(_ENOTDIR, f"error: getdirstripe failed for {path}.")
    entry = _folder(policy, store, real)
    shown = entry["layout"]
    if "-D" in names:
        shown = entry["default"] or {"count": 0, "index": -1, "hash": "none", "inherit": -1}
    values = {"stripe_count": shown["count"], "stripe_offset": shown["index"], "hash_type": shown["hash"]}
    if "-D" in names and not policy.before(2, 15):
        values["max_inherit"] = shown["inherit"]
        values |= {"max_inherit_rr": 0} if shown["index"] == -1 else {}
    print(*(f"lmv_{key}: {value}" for key, value in values.items()), sep="\n" if "-y" in names else " ")
    if "-D" not in names and shown["count"]:
        print("mdtidx\t\t FID[seq:oid:ver]")
        for place in range(shown["count"]):
            print(f"{(shown['index'] + place) % policy.mdts:>6}\t\t [{0x200000400 + place:#x}:0x1:0x0]\t\t")
    elif "-D" in names:
        print()


def _df(policy: Policy, _store: Store, arguments: list[str]) -> None:
    if len(arguments) != 1 or not policy.has(_real(arguments[0])):
        raise Refused(_EOPNOTSUPP, f"df:{' '.join(arguments)} Not a Lustre filesystem")
    print("{:<20} {:>11} {:>11} {:>11} {:>4} Mounted on".format("UUID", "1K-blocks", "Used", "Available", "Use%"))
    rows = [target for target in range(policy.osts) if target not in policy.inactive]
    for target in range(policy.mdts):
        _df_row(f"{FS}-MDT{target:04x}_UUID", policy.free_kib, f"{policy.mount}[MDT:{target}]")
    for target in rows:
        flags = " D" if target in policy.degraded else ""
        _df_row(f"{FS}-OST{target:04x}_UUID", policy.free_kib, f"{policy.mount}[OST:{target}]{flags}")
    print()
    _df_row("filesystem_summary:", policy.free_kib * len(rows), policy.mount)
    print()


def _df_row(name: str, free: int, where: str) -> None:
    used = 1000
    print(f"{name:<20} {free + used:>11} {used:>11} {free:>11} {used * 100 // (free + used):>3}% {where}")


def _pool_list(policy: Policy, _store: Store, arguments: list[str]) -> None:
    fs, _, pool = " ".join(arguments).partition(".")
    if fs != FS or (pool and pool not in policy.pools):
        raise Refused(
            _ENOENT, f"lfs pool_list: Lustre filesystem '{fs}.{pool}' not found: No such file or directory (2)"
        )
    if pool:
        print(f"Pool: {FS}.{pool}", *(f"{FS}-OST{target:04x}_UUID" for target in policy.pools[pool]), sep="\n")
    else:
        print(f"Pools from {FS}:", *(f"{FS}.{name}" for name in policy.pools), sep="\n")


def _quota(policy: Policy, _store: Store, arguments: list[str]) -> None:
    options, rest = _options("lfs quota", arguments, "qu:")
    if ("-q", "") not in options or len(options) != 2 or len(rest) != 1:
        _unknown("quota but for -q -u NAME PATH")
    name, path = dict(options)["-u"], rest[0]
    if not name.isdigit() and name not in {entry.pw_name for entry in pwd.getpwall()}:
        raise Refused(_USAGE, f"lfs quota: invalid id '{name}'")
    if not policy.has(_real(path)):
        raise Refused(_ENODEV, f"lfs quota: '{path}' not on a mounted Lustre filesystem")
    if policy.quota is None:
        raise Refused(_ESRCH, "user quotas are not enabled.")
    limit, used = policy.quota
    star = "*" if 0 < limit <= used else " "
    if policy.before(2, 16) and len(path) > 15:
        path = f"{path}\n{'':15}"
    print(f"{path:>15} {used:>7}{star} {0:>6} {limit:>7} {'-':>7} {7:>7}  {0:>6} {0:>7} {'-':>7}")
