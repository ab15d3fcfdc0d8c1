"""A stand-in for Lustre's lfs(1): layouts are kept in a folder, no file system is touched.

Formats, checks and codes follow lustre/utils/lfs.c and liblustreapi.c of 2.12, 2.15 and 2.16. As there, a new directory
has the default of its parent, one that is older than its parent's default keeps what it had, and one without a default
of its own looks at the mount point's. What the stand-in does not know fails with code 70, so that no test leans on it.
"""

import fcntl
import getopt
import grp
import json
import os
import pwd
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NoReturn

Lie = Literal["directory", "files", "wrapper"]

FS = "lus"
_USAGE, _UNKNOWN = 4, 70
_ENOENT, _ESRCH, _EEXIST, _ENODEV, _EINVAL, _ENOTTY, _EFBIG, _EOPNOTSUPP = 2, 3, 17, 19, 22, 25, 27, 95
_KIB, _64KIB, _4GIB = 1024, 1 << 16, 1 << 32
_MOST_STRIPES, _MOST_PER_TARGET, _LONGEST_POOL = 2000, 32, 15
_WRAPPER_COUNT, _WRAPPER_POOL = 450, "capacity"

_SCRIPT = """\
#!{python} -IS
import sys
from pathlib import Path

sys.path.insert(0, {root!r})
from tests.standins.lfs import main

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
) -> None:
    """Writes the command `lfs` into `folder`; paths below `mount` are on its Lustre, calls go to `state`/lfs.jsonl.

    pools: names, each of all targets, or names and their targets. free_kib: of each target. quota: limit and use in
    KiB, limit 0 for none; None where quotas are off. Of a site that does not do as it is asked, lies:
    directory: setstripe says 0 and changes nothing. files: directories show what was asked for, files have one stripe.
    wrapper: a site's own lfs, where all targets become 450 or as many as there are, in the pool "capacity".
    """
    folder.mkdir(parents=True, exist_ok=True)
    state.mkdir(parents=True, exist_ok=True)
    members = pools if isinstance(pools, Mapping) else {name: range(osts) for name in pools}
    if lies == "wrapper":
        members = {**members, _WRAPPER_POOL: range(osts)}
    policy = {
        "mount": str(mount.resolve()),
        "osts": osts,
        "version": version,
        "pools": {name: list(targets) for name, targets in members.items()},
        "lies": lies,
        "degraded": list(degraded),
        "inactive": list(inactive),
        "free_kib": free_kib,
        "quota": quota,
    }
    (state / "policy.json").write_text(json.dumps(policy))
    command = folder / "lfs"
    root = Path(__file__).resolve().parents[2]
    command.write_text(_SCRIPT.format(python=sys.executable, root=str(root), state=str(state.resolve())))
    command.chmod(0o755)


def calls(state: Path) -> list[list[str]]:
    """The arguments of every call so far."""
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

    def before(self, *version: int) -> bool:
        return tuple(map(int, re.findall(r"\d+", self.version)[:2])) < version

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
    """A component, or all of a plain layout. None: not said. count -1: all targets; end None: the end of the file."""

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

    @classmethod
    def of(cls, kept: Any) -> "Layout":
        return cls(tuple(Part(**part) for part in kept["parts"]), kept["composite"])


@dataclass
class Store:
    """Defaults of directories and layouts of files, by path; a path that became another inode is new."""

    directories: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)
    target: int = 0
    object: int = 1

    def forget_deleted(self) -> None:
        for kept in (self.directories, self.files):
            for path in [path for path, entry in kept.items() if _inode(path) != entry["inode"]]:
                del kept[path]


@contextmanager
def _opened(folder: Path) -> Iterator[Store]:
    """The store, for one process at a time; written back unless the call fails."""
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
    """One call of lfs, with the arguments given or those of this process; answers the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with (state / "lfs.jsonl").open("a") as log:
        log.write(json.dumps(words) + "\n")
    policy = Policy(**json.loads((state / "policy.json").read_text()))
    try:
        with _opened(state) as store:
            return _commands(policy, store, words)
    except Refused as refused:
        if str(refused):
            print(refused, file=sys.stderr)
        if refused.code == _USAGE:
            print(f"usage: lfs {words[0]} ...", file=sys.stderr if policy.before(2, 16) else sys.stdout)
        return refused.code


def _commands(policy: Policy, store: Store, words: list[str]) -> int:
    name, rest = (words[0], words[1:]) if words else ("", [])
    if name in {"--version", "version"}:
        print("lfs", policy.version)
    elif name == "setstripe":
        return Setstripe(policy, store, rest).run()
    elif name == "getstripe":
        _getstripe(policy, store, rest)
    elif name in _LISTS:
        _LISTS[name](policy, rest)
    elif not policy.before(2, 16):
        raise Refused(1, f"lfs: '{name}' is not a valid command. See 'lfs --list-commands'.")
    else:
        print(f'Try interactive use without arguments or use one of:\n"{name}"\nas argument.')
        return 1
    return 0


def _options(who: str, words: list[str], short: str, long: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    try:
        return getopt.gnu_getopt(words, short, list(long))
    except getopt.GetoptError as error:
        option = f"--{error.opt}" if len(error.opt) > 1 else f"-{error.opt}"
        raise Refused(_USAGE, f"{who}: unrecognized option '{option}'") from error


def _unknown(what: str) -> NoReturn:
    raise Refused(_UNKNOWN, f"the stand-in for lfs does not know {what}")


def _real(path: str) -> str:
    if not Path(path).exists():
        raise Refused(_ENOENT, f"error: invalid path '{path}': No such file or directory")
    return os.path.realpath(path)


class Setstripe:
    """lfs_setstripe_internal() of lfs.c: options in their order, each -E closes the component before it."""

    def __init__(self, policy: Policy, store: Store, words: list[str]) -> None:
        self.policy = policy
        self.store = store
        self.who = "lfs setstripe setstripe" if policy.before(2, 15) else "lfs setstripe"
        self.layout: list[Part] = []
        self.part = Part()
        self.composite = self.delete = False
        short = "c:di:p:S:" + ("" if policy.before(2, 10) else "E:") + ("" if policy.before(2, 11) else "L:y:")
        short += "" if policy.before(2, 13) else "C:"
        long = ["stripe-count=", "stripe-size=", "stripe-index=", "pool=", "delete"]
        options, self.paths = _options(self.who, words, short, long)
        for option, value in options:
            self._take({"--delete": "-d", "--stripe-size": "-S", "--stripe-index": "-i"}.get(option, option), value)

    def run(self) -> int:
        if not self.paths:
            raise Refused(_USAGE, f"{self.who}: FILE must be specified")
        if self.delete and (self.composite or self.part != Part()):
            raise Refused(_USAGE, f"{self.who}: option -d is mutually exclusive with -s, -c, -o, -p, -I, -F and -E")
        asked = self._finished()
        for path in self.paths:
            self._set(path, asked)
        return 0

    def _take(self, option: str, value: str) -> None:
        if option == "-d":
            self.delete = True
        elif option in {"-c", "--stripe-count", "-C"}:
            self.part = replace(self.part, count=self._count(option, value), overstripe=option == "-C")
        elif option == "-S":
            self.part = replace(self.part, size=self._size(value))
        elif option == "-i":
            index = self._number(value, "stripe offset", -1, 65503)
            self.part = replace(self.part, index=None if index == -1 else index)
        elif option in {"-p", "--pool"}:
            self.part = replace(self.part, pool=self._pool(value))
        elif option == "-E":
            self._component(value)
        elif option == "-L":
            self._pattern(value)
        else:
            _unknown(f"setstripe {option}")

    def _number(self, text: str, what: str, least: int, most: int) -> int:
        try:
            number = int(text, 0)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise Refused(_USAGE, f"{self.who}: invalid {what} '{text}'")
        return number

    def _count(self, option: str, text: str) -> int | None:
        least = -_MOST_PER_TARGET if option == "-C" and not self.policy.before(2, 16) else -1
        if option == "-C" and self.part.mdt:
            raise Refused(_USAGE, f"{self.who}: -C|--overstripe-count incompatible with DoM layout")
        return self._number(text, "stripe count", least, _MOST_STRIPES) or None

    def _bytes(self, text: str, what: str) -> int:
        """llapi_parse_size(); bare numbers below 4096 are KiB from 2.15 on."""
        ending = "" if self.policy.before(2, 15) else "[ib]?"
        match = re.fullmatch(rf"(\d+)(?:\.(\d+))?(?:([kmgtpe]){ending})?", text, re.IGNORECASE)
        if not match:
            raise Refused(_USAGE, f"{self.who}: invalid {what} '{text}'")
        unit: int = _KIB ** (1 + "kmgtpe".index(match[3].lower())) if match[3] else 1
        value: int = int(match[1]) * unit + int(match[2] or 0) * unit // 10 ** len(match[2] or "")
        return value * _KIB if value < 4096 and not self.policy.before(2, 15) else value

    def _size(self, text: str) -> int | None:
        size = self._bytes(text, "stripe size")
        if size % _64KIB and self.policy.before(2, 15):
            message = f"error: bad stripe_size {size}, must be an even multiple of 65536 bytes: Invalid argument (22)"
            raise Refused(_EINVAL, f"lfs setstripe: {message}")
        if size % _64KIB:
            raise Refused(_USAGE, f"{self.who}: invalid stripe size '{text}'")
        if size >= _4GIB:
            message = f"error: stripe size '{size}' over 4GB limit: Invalid argument (22)"
            raise Refused(_EINVAL, f"lfs setstripe: {message}")
        return size or None

    def _pool(self, text: str) -> str | None:
        name = text.rpartition(".")[2]
        if len(name) > _LONGEST_POOL:
            raise Refused(_EINVAL, f"lfs setstripe: Invalid Poolname '{name}': Invalid argument (22)")
        return name or None

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
        if name not in {"mdt", "raid0"}:
            raise Refused(_EINVAL, f"error: layout '{name}' is unknown, supported layouts are: 'mdt', 'raid0'")
        if name == "mdt" and self.layout:
            raise Refused(_EINVAL, "error: 'mdt' layout can be only the first one")
        if name == "mdt" and self.composite and (self.part.end or _4GIB) > 1 << 30:
            raise Refused(_EFBIG, "error: 'mdt' layout size is too big")
        self.part = replace(self.part, mdt=name == "mdt")

    def _finished(self) -> Layout:
        if not self.composite:
            if self.part.mdt:
                message = "Invalid pattern: '-L mdt', must be specified with -E: Invalid argument (22)"
                raise Refused(_EINVAL, f"lfs setstripe: {message}")
            return Layout((self.part,))
        self._close()
        start: int | None = 0
        for part in self.layout:
            if start is None or (part.end is not None and part.end <= start):
                print("Invalid layout: Component end is before end of previous component")
                raise Refused(1, "")
            if part.end and part.size and part.end % part.size:
                print("Invalid layout: The component end must be aligned by the stripe size")
                raise Refused(1, "")
            start = part.end
        return Layout(tuple(self.layout), composite=True)

    def _set(self, path: str, asked: Layout) -> None:
        target = Path(path)
        if not target.parent.is_dir():
            raise Refused(_ENOENT, f"lfs setstripe: unable to open '{path}': No such file or directory (2)")
        real = os.path.realpath(path)
        if not self.policy.has(real):
            self._refuse_elsewhere(target, asked)
        self._check_targets(path, asked)
        if target.is_dir():
            if self.policy.lies != "directory":
                self._default(real, asked)
            return
        if target.exists():
            raise Refused(_EEXIST, f"lfs setstripe: setstripe error for '{path}': stripe already set")
        target.touch()
        _keep_file(self.policy, self.store, real, asked)

    def _refuse_elsewhere(self, target: Path, asked: Layout) -> NoReturn:
        """Observed beside the source: the file is made before the file system refuses its layout."""
        if self.policy.before(2, 15) or (asked.parts[0].pool and not asked.composite):
            message = f"'{target}' is not on a Lustre filesystem: No such device (19)"
            raise Refused(_ENODEV, f"lfs setstripe: {message}")
        if not target.exists():
            target.touch()
        if asked.composite:
            what = "set default composite layout for" if target.is_dir() else "create composite file"
            raise Refused(1, f"lfs setstripe: cannot {what} '{target}': Inappropriate ioctl for device")
        message = f"setstripe error for '{target}': Inappropriate ioctl for device"
        raise Refused(_ENOTTY, f"lfs setstripe: {message}")

    def _check_targets(self, path: str, asked: Layout) -> None:
        """2.15 takes a pool nobody knows: neither its lfs nor its lod_lov.c looks."""
        for part in asked.parts:
            if part.index is not None and part.index not in self.policy.usable(part.pool):
                raise Refused(_EINVAL, f"lfs setstripe: setstripe error for '{path}': Invalid argument")
            if part.pool is None or part.pool in self.policy.pools or asked.composite:
                continue
            if self.policy.before(2, 15):
                raise Refused(_EINVAL, f"lfs setstripe: pool '{FS}.{part.pool}' does not exist")
            if not self.policy.before(2, 16):
                message = f"pool '{part.pool} fsname {FS}' does not exist: No such file or directory (2)"
                raise Refused(_EINVAL, f"lfs setstripe: {message}")

    def _default(self, directory: str, asked: Layout) -> None:
        """The directory's new default; what is below it already stays as it is."""
        for below, folders, files in os.walk(directory):
            for name in files:
                _file(self.policy, self.store, f"{below}/{name}")
            for name in folders:
                path = f"{below}/{name}"
                if directory != self.policy.mount and path not in self.store.directories:
                    _keep_directory(self.store, path, _default_of(self.policy, self.store, path))
        if asked == Layout() or self.delete:
            _keep_directory(self.store, directory, None)
        else:
            _keep_directory(self.store, directory, self._as_the_site_does(asked))

    def _as_the_site_does(self, asked: Layout) -> Layout:
        if self.policy.lies != "wrapper":
            return asked
        all_targets = min(_WRAPPER_COUNT, self.policy.osts)
        forced = (
            replace(part, count=all_targets if part.count == -1 else part.count, pool=None if part.mdt else "capacity")
            for part in asked.parts
        )
        return replace(asked, parts=tuple(forced))


def _keep_directory(store: Store, path: str, default: Layout | None) -> None:
    kept = None if default is None else asdict(default)
    store.directories[path] = {"inode": _inode(path), "set": time.time(), "default": kept}


def _default_of(policy: Policy, store: Store, directory: str) -> Layout | None:
    """The nearest directory upwards that has a default, or is known to have none; then the mount point's."""
    for path in (directory, *map(str, Path(directory).parents)):
        if path in store.directories and (kept := store.directories[path]["default"]):
            return Layout.of(kept)
        if path in store.directories or path == policy.mount:
            break
    kept = store.directories.get(policy.mount, {}).get("default")
    return Layout.of(kept) if kept else None


def _file(policy: Policy, store: Store, path: str) -> Any:
    """The file's layout, which it got when it was first seen; components get objects where data begins."""
    if path not in store.files:
        default = _default_of(policy, store, str(Path(path).parent)) or Layout()
        if policy.lies == "files":
            default = Layout((Part(count=1, size=default.parts[0].size),))
        _keep_file(policy, store, path, default)
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


def _keep_file(policy: Policy, store: Store, path: str, layout: Layout) -> None:
    parts = [asdict(part) | {"objects": None} for part in layout.parts]
    store.files[path] = {"inode": _inode(path), "parts": parts, "composite": layout.composite}


def _objects(policy: Policy, store: Store, part: Part) -> list[tuple[int, int]]:
    """Targets and object numbers: from the index, or on from where the last file ended."""
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


def _getstripe(policy: Policy, store: Store, words: list[str]) -> None:
    short = "dq" if policy.before(2, 11) else "dqy"
    options, paths = _options("lfs", words, short, ["directory", "quiet", *(["yaml"] if "y" in short else [])])
    names = {option[:3].strip("-")[:1] for option, _ in options}
    if not paths:
        raise Refused(_USAGE, "error: getstripe: no filename|pathname")
    if "y" not in names or len(paths) > 1:
        _unknown("getstripe without --yaml, or of several paths")
    (path,) = paths
    if not Path(path).exists():
        raise Refused(_ENOENT, f"error: getstripe failed for {path}.")
    real = os.path.realpath(path)
    if not policy.has(real):
        message = f"lfs getstripe: cb_getstripe: '{path}' not on a Lustre fs?: Inappropriate ioctl for device (25)"
        raise Refused(_ENOTTY, f"{message}\nerror: getstripe failed for {path}.")
    if not Path(path).is_dir():
        _print_file(policy, _file(policy, store, real))
        return
    _print_directory(policy, _default_of(policy, store, real))
    if "d" not in names:
        for entry in sorted(Path(real).iterdir()):
            if entry.is_file():
                _print_file(policy, _file(policy, store, str(entry)))


def _print_directory(policy: Policy, layout: Layout | None) -> None:
    """lov_dump_user_lmm_header(): without a default, the file system's values and pattern 0."""
    shown = layout or Layout()
    _print_frame(policy, shown.composite, generation=0, count=len(shown.parts))
    begin = 0
    for number, part in enumerate(shown.parts):
        prefix = _print_extent(policy, shown.composite, number, "N/A", begin, part.end, instantiated=False)
        pattern = "mdt" if part.mdt else "raid0" + (",overstriped" if part.overstripe else "")
        count = 0 if part.mdt else part.count or 1
        size = (part.end if part.mdt else part.size) or policy.default_size
        print(f"{prefix}stripe_count:  {count}\n{prefix}stripe_size:   {size}")
        print(f"{prefix}pattern:       {pattern if layout else 0}")
        print(f"{prefix}stripe_offset: {-1 if part.index is None else part.index}")
        if part.pool:
            print(f"{prefix}pool:          {part.pool}")
        _print_gap(policy)
        begin = part.end or 0


def _print_file(policy: Policy, kept: Any) -> None:
    instantiated = [part["objects"] is not None for part in kept["parts"]]
    _print_frame(policy, kept["composite"], generation=sum(instantiated), count=len(kept["parts"]))
    begin = 0
    for number, part in enumerate(kept["parts"]):
        identity = str(number + 1)
        indent = _print_extent(policy, kept["composite"], number, identity, begin, part["end"], instantiated[number])
        _print_stripes(policy, indent, part)
        _print_gap(policy)
        begin = part["end"] or 0


def _print_stripes(policy: Policy, indent: str, part: Any) -> None:
    objects = part["objects"]
    pattern = "mdt" if part["mdt"] else "raid0" + (",overstriped" if part["overstripe"] else "")
    asked = 0 if part["mdt"] else part["count"] or 1
    size = (part["end"] if part["mdt"] else part["size"]) or policy.default_size
    offset = -1 if objects is None else 0 if part["mdt"] else objects[0][0]
    lines = [
        f"lmm_stripe_count:  {asked if objects is None else len(objects)}",
        f"lmm_stripe_size:   {size}",
        f"lmm_pattern:       {pattern}",
        "lmm_layout_gen:    0",
        f"lmm_stripe_offset: {offset}",
        *([f"lmm_pool:          {part['pool']}"] if part["pool"] else []),
        *(["lmm_objects:"] if objects else []),
    ]
    print("\n".join(indent + line for line in lines))
    for target, number in objects or []:
        print(f"      - l_ost_idx: {target}\n        l_fid:     {0x100000000 + (target << 16):#x}:{number:#x}:0x0")


def _print_frame(policy: Policy, composite: bool, generation: int, count: int) -> None:
    if not composite:
        return
    indent = "  " if policy.before(2, 16) else ""
    print(f"{indent}lcm_layout_gen:    {generation}\n{indent}lcm_mirror_count:  1\n{indent}lcm_entry_count:   {count}")
    if not policy.before(2, 16):
        print("components:")


def _print_extent(
    policy: Policy, composite: bool, number: int, identity: str, begin: int, end: int | None, instantiated: bool
) -> str:
    """The lines before a component's stripes; answers their indent. A mapping each before 2.16, then a list."""
    if not composite:
        return ""
    old = policy.before(2, 16)
    print(
        f"  component{number}:\n    lcme_id:             {identity}" if old else f"  - lcme_id:             {identity}"
    )
    print(f"    lcme_mirror_id:      {identity if identity == 'N/A' else 0}")
    print(f"    lcme_flags:          {'init' if instantiated else 0}")
    print(f"    lcme_extent.e_start: {begin}\n    lcme_extent.e_end:   {'EOF' if end is None else end}")
    print("    sub_layout:")
    return "      "


def _print_gap(policy: Policy) -> None:
    if policy.before(2, 16):
        print()


def _osts(policy: Policy, words: list[str]) -> None:
    _, paths = _options("lfs", words, "", [])
    if any(not policy.has(_real(path)) for path in paths):
        return
    print("OBDS:")
    for target in range(policy.osts):
        print(f"{target}: {FS}-OST{target:04x}_UUID {'IN' if target in policy.inactive else ''}ACTIVE")


def _df(policy: Policy, words: list[str]) -> None:
    options, paths = _options("lfs", words, "i", ["inodes"])
    if any(not policy.has(_real(path)) for path in paths):
        if policy.before(2, 15):
            return
        print(f"df:{paths[0]} Not a Lustre filesystem")
        raise Refused(_EOPNOTSUPP, "")
    inodes = bool(options)
    heads = ("Inodes", "IUsed", "IFree", "IUse%") if inodes else ("1K-blocks", "Used", "Available", "Use%")
    print("{:<20} {:>11} {:>11} {:>11} {:>4} Mounted on".format("UUID", *heads))
    free = 10_000_000 if inodes else policy.free_kib
    rows = [target for target in range(policy.osts) if target not in policy.inactive]
    _df_row(f"{FS}-MDT0000_UUID", free, f"{policy.mount}[MDT:0]")
    for target in rows:
        flags = " D" if target in policy.degraded else ""
        _df_row(f"{FS}-OST{target:04x}_UUID", free, f"{policy.mount}[OST:{target}]{flags}")
    print()
    _df_row("filesystem_summary:", free * (1 if inodes else len(rows)), policy.mount)
    print()


def _df_row(name: str, free: int, where: str) -> None:
    used = 1000
    print(f"{name:<20} {free + used:>11} {used:>11} {free:>11} {used * 100 // (free + used):>3}% {where}")


def _pool_list(policy: Policy, words: list[str]) -> None:
    if len(words) != 1:
        raise Refused(_USAGE, "")
    fs, _, pool = words[0].partition(".")
    if "/" in words[0]:
        fs, pool = (FS if policy.has(_real(words[0])) else ""), ""
    if fs != FS or (pool and pool not in policy.pools):
        raise Refused(
            _ENOENT, f"lfs pool_list: Lustre filesystem '{words[0]}' not found: No such file or directory (2)"
        )
    if pool:
        print(f"Pool: {FS}.{pool}", *(f"{FS}-OST{target:04x}_UUID" for target in policy.pools[pool]), sep="\n")
    else:
        print(f"Pools from {FS}:", *(f"{FS}.{name}" for name in policy.pools), sep="\n")


def _quota(policy: Policy, words: list[str]) -> None:
    options, rest = _options("lfs quota", words, "qu:g:", [])
    who = [(option, value) for option, value in options if option != "-q"]
    if len(who) != 1 or len(rest) != 1:
        raise Refused(_USAGE, "lfs quota: name and mount point must be specified")
    ((option, name),) = who
    kind, number = ("user", _user(name)) if option == "-u" else ("group", _group(name))
    (path,) = rest
    if not policy.has(_real(path)):
        raise Refused(_ENODEV, f"lfs quota: '{path}' not on a mounted Lustre filesystem")
    if policy.quota is None:
        raise Refused(_ESRCH, f"{kind} quotas are not enabled.")
    if ("-q", "") not in options:
        print(f"Disk quotas for {kind} {name} ({kind[0]}id {number}):")
        print(f"{'Filesystem':>15}  kbytes   quota   limit   grace   files   quota   limit   grace")
    limit, used = policy.quota
    star = "*" if 0 < limit <= used else " "
    if policy.before(2, 16) and len(path) > 15:
        path = f"{path}\n{'':15}"
    print(f"{path:>15} {used:>7}{star} {0:>6} {limit:>7} {'-':>7} {7:>7}  {0:>6} {0:>7} {'-':>7}")


def _user(name: str) -> int:
    try:
        return int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Refused(_USAGE, f"lfs quota: invalid id '{name}'") from None


def _group(name: str) -> int:
    try:
        return int(name) if name.isdigit() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise Refused(_USAGE, f"lfs quota: invalid id '{name}'") from None


def _getname(policy: Policy, words: list[str]) -> None:
    options, paths = _options("lfs", words, "" if policy.before(2, 13) else "n", [])
    if len(paths) != 1:
        _unknown("getname of no path, or of several")
    if not policy.has(_real(paths[0])):
        raise Refused(_ENODEV, f"cannot get instance for '{paths[0]}': No such device")
    print(FS if options else f"{FS}-ffff9a3c4d5e6800 {paths[0]}")


_LISTS = {"df": _df, "osts": _osts, "pool_list": _pool_list, "quota": _quota, "getname": _getname}
