"""Layouts are requested, printed by lfs and read back. lfs is a stand-in; the tests need no Lustre."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, DlioError
from dlio_hpc.config import lustre_layout, workload
from dlio_hpc.config.lustre_layout import Component, Directories, Layout
from dlio_hpc.dataset import fingerprints
from dlio_hpc.files import filesystem
from dlio_hpc.lustre import lfs, readback
from dlio_hpc.lustre.lfs import DirectoryLayout, LayoutComponent
from dlio_hpc.plan import plan
from tests.conftest import Run
from tests.support import throttle
from tests.support.places import ROOT
from tests.support.standins import lfs as standin
from tests.support.standins import libdarshan

MIB = units.Size(1 << 20)

# Printed by lfs's own code for made-up layouts: 2.12 and 2.15 know components as mappings, 2.16 as a list.
FOLDER = """\
stripe_count:  -1
stripe_size:   4194304
pattern:       raid0
stripe_offset: -1
pool:          flash
"""
FILE = """\
lmm_stripe_count:  2
lmm_stripe_size:   1048576
lmm_pattern:       raid0,overstriped
lmm_layout_gen:    0
lmm_stripe_offset: 3
lmm_pool:          flash
lmm_objects:
      - l_ost_idx: 3
        l_fid:     0x100030000:0x2:0x0
      - l_ost_idx: 0
        l_fid:     0x100000000:0x2:0x0

"""
COMPOSITE_215 = """\
  lcm_layout_gen:    4
  lcm_mirror_count:  1
  lcm_entry_count:   2
  component0:
    lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   4194304
    sub_layout:
      lmm_stripe_count:  0
      lmm_stripe_size:   4194304
      lmm_pattern:       mdt
      lmm_layout_gen:    0
      lmm_stripe_offset: 0

  component1:
    lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 4194304
    lcme_extent.e_end:   EOF
    sub_layout:
      lmm_stripe_count:  -1
      lmm_stripe_size:   1048576
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1

"""
COMPOSITE_216 = """\
lcm_layout_gen:    4
lcm_mirror_count:  1
lcm_entry_count:   1
components:
  - lcme_id:             N/A
    lcme_mirror_id:      N/A
    lcme_flags:          0
    lcme_extent.e_start: 0
    lcme_extent.e_end:   EOF
    sub_layout:
      stripe_count:  8
      stripe_size:   1048576
      pattern:       raid0
      stripe_offset: -1
"""


def test_what_lfs_prints_is_read() -> None:
    assert lfs.parse(FOLDER, "") == (LayoutComponent(None, -1, 4 * MIB, "raid0", "flash", -1),)
    assert lfs.parse(FILE, "") == (LayoutComponent(None, 2, MIB, "raid0,overstriped", "flash", 3, (3, 0)),)
    on_mdt, rest = lfs.parse(COMPOSITE_215, "")
    assert (on_mdt.end, on_mdt.pattern, rest.end, rest.stripe_count) == (4 * MIB, "mdt", None, -1)
    assert [part.stripe_count for part in lfs.parse(COMPOSITE_216, "")] == [8]


@given(st.one_of(st.text(max_size=200), st.sampled_from([FOLDER, FILE, COMPOSITE_215, COMPOSITE_216]).flatmap(
    lambda text: st.integers(0, len(text)).map(lambda cut: text[:cut] + text[cut + 3 :])
)))  # fmt: skip
def test_whatever_lfs_prints_does_no_harm(text: str) -> None:
    with suppress(DlioError):
        lfs.parse(text, "lfs getstripe")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("{stripe_count: 48, stripe_size: 1 MiB}", "-c 48 -S 1048576"),
        ("{stripe_count: -1, stripe_index: 0, pool: flash}", "-c -1 -p flash -i 0"),
        ("{stripe_count: 16, overstripe: true}", "-C 16"),
        (
            "{components: [{end: 4 MiB, mdt: true}, {end: 256 MiB, stripe_count: 4}, "
            "{stripe_count: -1, stripe_size: 4 MiB, pool: disk}]}",
            "-E 4194304 -L mdt -E 268435456 -c 4 -E -1 -c -1 -S 4194304 -p disk",
        ),
    ],
)
def test_a_layout_as_options_of_setstripe(text: str, options: str) -> None:
    asked = serialization.convert(serialization.parse_yaml(text, ""), Layout, "site")
    assert lustre_layout.arguments(asked) == options.split()


@pytest.mark.parametrize(
    ("text", "commands", "description"),
    [
        ("{directories: {}}", "lfs mkdir -c 1 D", "folder on 1 MDT"),
        ("{directories: {count: -1, index: 2}}", "lfs mkdir -c -1 -i 2 D", "folder on all MDTs, from MDT 2"),
        (
            "{stripe_count: 8, directories: {count: 4, hash: crush, inherit: 2}}",
            "lfs mkdir -c 4 -H crush D && lfs setdirstripe -D -c 4 -H crush --max-inherit 2 D && lfs setstripe -c 8 D",
            "8 stripes, folder on 4 MDTs, hash crush, inherited by 2 levels of subfolders",
        ),
        (
            "{directories: {count: 2, inherit: -1}}",
            "lfs mkdir -c 2 D && lfs setdirstripe -D -c 2 --max-inherit -1 D",
            "folder on 2 MDTs, inherited by all subfolders",
        ),
    ],
)
def test_a_layout_of_directories_as_commands(text: str, commands: str, description: str) -> None:
    asked = serialization.convert(serialization.parse_yaml(text, ""), Layout, "site")
    assert lfs.command_line("D", asked) == commands
    assert lustre_layout.describe(asked) == description


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{directories: {count: 0}}", "count must be 1 to 2000, or -1 for all MDTs, not 0"),
        ("{directories: {count: 2001}}", "count must be 1 to 2000"),
        ("{directories: {hash: crush}}", "hash needs a count of 2 or more"),
        ("{directories: {count: 2, hash: md5}}", "hash"),
        ("{directories: {inherit: 251}}", "inherit"),
        ("{}", "write layout: null for the file system's default"),
        ("{stripe_count: 0}", "stripe_count must be 1 to 2000, or -1"),
        ("{stripe_count: 2001}", "stripe_count must be 1 to 2000"),
        ("{stripe_size: 100 KiB}", "stripe_size must be a multiple of 64 KiB below 4 GiB"),
        ("{stripe_size: 4 GiB}", "stripe_size must be a multiple of 64 KiB below 4 GiB"),
        ("{pool: a-name-that-is-too-long}", "pool must be a name of at most 15"),
        ("{pool: 'a b'}", "pool must be a name of at most 15"),
        ("{overstripe: true}", "overstripe needs a stripe_count"),
        ("{stripe_count: 2, components: [{}]}", "remove the other keys"),
        ("{components: [{}, {}]}", "all components except the last need an end"),
        ("{components: [{end: 4 MiB}, {end: 2 MiB}]}", "the ends of components must increase"),
        ("{components: [{end: 4 MiB}, {end: 8 MiB, mdt: true}]}", "only the first component"),
        ("{components: [{end: 1 MiB, stripe_size: 4 MiB}]}", "is not a multiple of stripe_size"),
        ("{components: [{mdt: true}]}", "a component on the metadata server needs an end"),
        ("{components: [{end: 1 MiB, mdt: true, stripe_size: 64 KiB}, {}]}", "has no stripes and no pool"),
        ("{stripes: 4}", "unknown key 'stripes'"),
    ],
)
def test_a_layout_that_no_lustre_takes_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        serialization.convert({"layout": serialization.parse_yaml(text, "")}, _Holder, "site.yaml")
    assert "layout" in str(caught.value)
    assert message in str(caught.value)


class _Holder(msgspec.Struct):
    layout: Layout


@pytest.mark.parametrize(
    ("asked", "client", "message"),
    [
        (Layout(stripe_count=4, overstripe=True), (2, 12, 9), "overstripe needs a Lustre client of 2.13"),
        (Layout(components=(Component(stripe_count=4),)), (2, 9), r"components \(PFL\) needs a Lustre client of 2.10"),
        (Layout(components=(Component(end=MIB, mdt=True), Component())), (2, 10), "but the client is 2.10"),
        (Layout(directories=Directories(count=2, hash="crush")), (2, 12), "directories.hash: crush needs .* 2.14"),
        (Layout(directories=Directories(count=2, inherit=1)), (2, 14), "directories.inherit needs .* 2.15"),
        (Layout(directories=Directories()), (2, 10), "directories needs .* 2.12"),
    ],
)
def test_options_are_gated_by_the_clients_version(asked: Layout, client: tuple[int, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lfs.check_version(asked, client)
    lfs.check_version(asked, (2, 16, 1))


def _plain(
    count: int = 4, size: int = MIB, pool: str | None = None, first: int = 0, targets: int = 0
) -> LayoutComponent:
    return LayoutComponent(None, count, size, "raid0", pool, first, tuple(range(targets)))


@pytest.mark.parametrize(
    ("asked", "actual", "is_file", "message"),
    [
        (Layout(stripe_count=4, stripe_size=MIB), (_plain(),), False, ""),
        (Layout(stripe_count=8), (_plain(),), True, "4 stripes, requested: 8"),
        (Layout(stripe_count=48), (_plain(8, targets=8),), True, "8 stripes, requested: 48 (8 targets exist)"),
        (Layout(stripe_count=-1), (_plain(8, targets=8),), True, ""),
        (Layout(stripe_count=-1), (_plain(7, targets=7),), True, "7 stripes, requested: all 8 targets"),
        (Layout(stripe_count=-1), (_plain(450),), False, "450 stripes, requested: all targets"),
        (Layout(stripe_size=units.Size(4 * MIB)), (_plain(),), True, "stripes of 1 MiB, requested: 4 MiB"),
        (Layout(pool="flash"), (_plain(),), True, "no pool, requested: pool flash"),
        (Layout(pool="flash"), (_plain(pool="disk"),), True, "pool disk, requested: pool flash"),
        (Layout(stripe_index=3), (_plain(first=5),), True, "first stripe on target 5, requested: 3"),
        (Layout(stripe_count=4, overstripe=True), (_plain(targets=4),), True, ""),
        (Layout(stripe_count=9, overstripe=True), (_plain(9, targets=9),), True, "pattern raid0, requested: over"),
        (Layout(components=(Component(end=MIB), Component())), (_plain(),), True, "no components, requested: 2"),
        (Layout(stripe_count=4), (_plain(), _plain()), True, "2 components, requested: no components"),
        (Layout(components=(Component(end=MIB, mdt=True), Component())), (_plain(), _plain()), True,
         "component 1: it ends at end of file, requested: 1048576"),
    ],
)  # fmt: skip
def test_what_is_not_as_asked_is_told(
    asked: Layout, actual: tuple[LayoutComponent, ...], is_file: bool, message: str
) -> None:
    differences = readback.differences(asked, actual, 8, is_file)
    assert "; ".join(differences).startswith(message)
    assert bool(differences) == bool(message)


@pytest.mark.parametrize(
    ("asked", "actual", "available", "message"),
    [
        (Directories(count=4), DirectoryLayout(4, 1, "crush"), 4, ""),
        (Directories(count=4), DirectoryLayout(2, 1, "crush"), 2, "on 2 MDTs, requested: on 4 MDTs (2 MDTs exist)"),
        (Directories(count=4), DirectoryLayout(0, 0, "none"), 1, "on 1 MDT, requested: on 4 MDTs (1 MDT exist"),
        (Directories(count=4), DirectoryLayout(0, 0, "none"), None, "on 1 MDT, requested: on 4 MDTs"),
        (Directories(), DirectoryLayout(0, 3, "none"), 4, ""),
        (Directories(), DirectoryLayout(1, 3, "crush"), 4, ""),
        (Directories(), DirectoryLayout(2, 3, "crush"), 4, "on 2 MDTs, requested: on 1 MDT"),
        (Directories(count=-1), DirectoryLayout(4, 3, "crush"), 4, ""),
        (Directories(count=-1), DirectoryLayout(0, 0, "none"), 1, ""),
        (Directories(count=-1), DirectoryLayout(3, 3, "crush"), 4, "on 3 MDTs, requested: on all MDTs"),
        (Directories(count=-1), DirectoryLayout(3, 3, "crush"), None, ""),
        (Directories(index=1), DirectoryLayout(0, 2, "none"), 4, "first stripe on MDT 2, requested: MDT 1"),
        (Directories(count=2, hash="crush"), DirectoryLayout(2, 2, "all_char"), 4, "hash all_char, requested: crush"),
        (Directories(count=-1, inherit=2), DirectoryLayout(-1, -1, "none", 2), 4, ""),
        (Directories(count=-1, inherit=2), DirectoryLayout(4, -1, "none", 2), 4, "new subfolders: on 4 MDTs, requ"),
        (Directories(count=2, inherit=2), DirectoryLayout(2, -1, "none", -1), 4, "new subfolders: inherited by -1"),
    ],
)
def test_a_folder_that_is_not_as_asked_is_told(
    asked: Directories, actual: DirectoryLayout, available: int | None, message: str
) -> None:
    differences = readback.directory_differences(asked, actual, available)
    assert "; ".join(differences).startswith(message)
    assert bool(differences) == bool(message)


@pytest.mark.parametrize("name", ["1e5", "null", "0x10", "true", "12", "no"])
def test_a_pool_is_named_in_text(name: str) -> None:
    """lfs writes names without quotes, which YAML reads as numbers or null."""
    for prefix in ("lmm_", ""):
        values = {"stripe_count": 1, "stripe_size": 1048576, "pattern": "raid0", "stripe_offset": 0, "pool": name}
        text = "".join(f"{prefix}{key}:      {value}\n" for key, value in values.items())
        assert [part.pool for part in lfs.parse(text, "test")] == [name]


def test_targets_pools_and_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standin.install(
        tmp_path / "bin", tmp_path / "state", mount=tmp_path, osts=6, pools={"flash": [0, 1]}, degraded=[2],
        quota=(1000, 400),
    )  # fmt: skip
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    targets = lfs.targets(tmp_path)
    assert [target.number for target in targets] == list(range(6))
    assert [target.flags for target in targets] == ["", "", "D", "", "", ""]
    assert lfs.pool_size("lus", "flash") == 2
    with pytest.raises(ConfigError, match="file system lus has no pool 'slow'; existing pools: flash"):
        lfs.pool_size("lus", "slow")
    kept = lfs.quota("-u", "nobody", tmp_path)
    assert kept is not None
    assert (kept.used_bytes, kept.most_bytes) == (400 << 10, 1000 << 10)


def test_a_target_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """lfs df then ends with that target's error, and still lists the others."""
    rows = (
        "lus-OST0000_UUID       976762584    12345678   964416906   2% /lus[OST:0]\n"
        "lus-OST000a_UUID    : Resource temporarily unavailable\n"
        "lus-OST0002_UUID       976762584    12345678   964416906   2% /lus[OST:2] DR \n"
    )
    (tmp_path / "lfs").write_text(f"#!/bin/sh\ncat << END\n{rows}END\nexit 11\n")
    (tmp_path / "lfs").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert [(one.number, one.flags) for one in lfs.targets(tmp_path)] == [(0, ""), (2, "DR"), (10, "down")]


def test_file_systems_are_told_by_their_magic(tmp_path: Path) -> None:
    assert filesystem.of(Path("/proc")).kind == "proc"
    assert filesystem.of(Path("/dev/shm")).kind == "tmpfs"
    assert filesystem.of(Path("/dev/shm/no/such/folder")).mount == "/dev/shm"
    assert not filesystem.of(tmp_path).is_lustre
    lustre = filesystem.FileSystem("lustre", "/lus", "10.0.0.1@tcp:10.0.0.2@tcp:/theta/projects")
    assert lustre.fsname == "theta"


# Jobs. What lies below `lustre` counts as Lustre there: statfs(2) is told so in every Python that starts.
_SITECUSTOMIZE = """\
from pathlib import Path
from dlio_hpc.files import filesystem

real_magic, real_mount = filesystem.magic, filesystem._mount
below = Path({mount!r})
filesystem.magic = lambda path: filesystem.LUSTRE if path.is_relative_to(below) else real_magic(path)
lustre = filesystem.Mount(str(below), "lustre", "mgs@tcp:/lus", ())
filesystem._mount = lambda path: lustre if path.is_relative_to(below) else real_mount(path)
"""


class Machine:
    """A folder that commands take for a Lustre file system."""

    def __init__(self, run: Run, folder: Path, **policy: Any) -> None:
        self.mount = folder / "lustre"
        self.state = folder / "state"
        self.mount.mkdir()
        (folder / "python").mkdir()
        (folder / "python" / "sitecustomize.py").write_text(_SITECUSTOMIZE.format(mount=str(self.mount)))
        standin.install(folder / "bin", self.state, mount=self.mount, **policy)
        self._run = run
        self._environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "PYTHONPATH": f"{folder}/python:{ROOT}"}

    def run(self, *arguments: object) -> Any:
        return self._run(*arguments, **self._environment)

    def submit(self, workload: Path, *options: object, code: int = 0) -> Any:
        done = self.run("dlio-submit", workload, "-s", "local", "-d", self.mount / "data", "--wait", "--json", *options)
        assert done.code == code, done.err
        return done.job

    def calls(self, verb: str) -> list[list[str]]:
        return [call for call in standin.calls(self.state) if call[0] == verb]


def _record(job: Any, name: str) -> Any:
    return yaml.safe_load((Path(job["directory"]) / "layout" / name).read_text())


_ASKED = ("-S", "site.layout={stripe_count: 4, stripe_size: 2 MiB, pool: flash}")


def test_a_layout_is_set_before_data_exist_and_read_back_from_them(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path)
    job = machine.submit(small, *_ASKED)
    assert job["state"] == "completed"
    (set_once,) = machine.calls("setstripe")
    folder = job["runs"][0]["result"]["generated"]["dataset"]
    assert set_once == ["setstripe", "-c", "4", "-S", "2097152", "-p", "flash", folder]
    before, after = _record(job, "before.yaml"), _record(job, "after.yaml")
    lustre = {"kind": "lustre", "mount": str(machine.mount), "source": "mgs@tcp:/lus"}
    assert before["file_system"].items() >= lustre.items()
    assert before["lfs"] == "2.15.5"
    assert before["directory"][0]["stripe_count"] == 1
    assert before["asked"]["stripe_count"] == 4
    assert after["directory"][0]["stripe_count"] == 4
    assert (after["files"], after["looked_at"], after["faults"]) == (6, 6, [])
    (kind,) = after["layouts"]
    assert (kind["files"], kind["parts"][0]["stripe_count"], kind["parts"][0]["pool"]) == (6, 4, "flash")
    assert sum(after["stripes"].values()) == 24
    shown = machine.run("dlio-hpc", "report", job["archive"])
    assert "Lustre, requested: 4 stripes of 2 MiB in pool flash; read back: 6 files with 4 stripes" in " ".join(
        shown.out.split()
    )
    again = machine.submit(small, *_ASKED)
    assert again["runs"][0]["result"]["generated"]["reused"]
    assert len(machine.calls("setstripe")) == 1, "what lies there stays as it is"
    assert _record(again, "after.yaml")["faults"] == []
    other = machine.submit(small, "-S", "site.layout={stripe_count: 2}")
    assert other["runs"][0]["result"]["generated"]["dataset"] != folder, "another layout, another dataset"


def test_datasets_of_one_study_have_each_the_layout_that_was_asked_for(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path)
    done = machine.run(
        "dlio-submit", small, "-s", "local", "-d", machine.mount / "data", "--wait", "--json", "--seed", 1,
        "-S", "site.layout={stripe_count: 4}", "-P", "site.layout.stripe_size=1MiB,2MiB",
    )  # fmt: skip
    assert done.code == 0, done.err
    (job,) = done.json["jobs"]
    assert [call[1:5] for call in machine.calls("setstripe")] == [
        ["-c", "4", "-S", "1048576"], ["-c", "4", "-S", "2097152"],
    ]  # fmt: skip
    for name, size in (("after.yaml", MIB), ("after-2.yaml", 2 * MIB)):
        assert _record(job, name)["layouts"][0]["parts"][0]["stripe_size"] == size
        assert _record(job, name.replace("after", "before"))["asked"]["stripe_size"] == size
    assert len({entry["result"]["dataset"]["path"] for entry in job["runs"]}) == 2


def test_a_slow_storage_target_is_named(run: Run, small: Path, tmp_path: Path) -> None:
    """In the new file system all reads from the target that holds one of the files take 200 ms more.
    Lustre tells which file lies where, Darshan how long each of them took.
    """
    machine = Machine(run, tmp_path)
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    parts = [
        (tmp_path / "python" / "sitecustomize.py").read_text(),
        throttle.below(machine.mount / "new", file="00000002.npz", delay=0.2),
        Path(libdarshan.__file__).with_name("sitecustomize.py").read_text(),
    ]
    (ranks / "sitecustomize.py").write_text("\n".join(parts))
    path = f"{ranks}:{Path(libdarshan.__file__).parent}:{ROOT}"
    done = machine.run(
        "dlio-submit", small, "-s", "local", "--ppn", 2, "--ab", machine.mount / "old", machine.mount / "new",
        "-S", "site.layout={stripe_count: 1}", "-S", f"site.darshan={libdarshan.install(tmp_path / 'lib')}",
        "-S", f"site.rank_environment={{PYTHONPATH: '{path}'}}", "-S", "compute.time=0", "--wait", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    (job,) = done.json["jobs"]
    after = [_record(job, name) for name in ("after.yaml", "after-2.yaml")]
    new = next(record for record in after if record["path"].startswith(str(machine.mount / "new")))
    (slow,) = new["targets"]["00000002.npz"]
    _, side = done.json["stragglers"]
    slowest, *others = side["targets"]
    assert (slowest["name"], slowest["is_straggler"]) == (f"OST {slow}", True)
    assert slowest["ratio"] < 0.05 < others[0]["ratio"], "the others differ as short reads do"
    assert len(others) == 5
    shown = " ".join(machine.run("dlio-hpc", "report", done.json["study"]).out.split())
    assert f"Straggler in {machine.mount / 'new'}: OST {slow}," in shown


def test_a_layout_that_is_not_as_asked_spoils_its_own_points_alone(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path)
    done = machine.run(
        "dlio-submit", small, "-s", "local", "-d", machine.mount / "data", "--wait", "--json", "--seed", 1,
        "-S", "site.layout={stripe_size: 1 MiB}", "-P", "site.layout.stripe_count=2,11",
    )  # fmt: skip
    assert done.code == 3, done.err
    (missing,) = done.json["missing"]
    assert "the layout is not the requested one" in missing["why"]
    assert missing["title"] == "site.layout.stripe_count=11"
    assert len(done.json["points"][0]["measurements"]) == 1


def test_progressive_and_overstriped_layouts(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path, version="2.16.1")
    parts = "{end: 1 MiB, mdt: true}, {end: 4 MiB, stripe_count: 2}, {stripe_count: -1, stripe_size: 4 MiB}"
    job = machine.submit(small, "-S", f"site.layout={{components: [{parts}]}}")
    assert [part["end"] for part in _record(job, "after.yaml")["directory"]] == [MIB, 4 * MIB, None]
    job = machine.submit(small, "-S", "site.layout={stripe_count: 12, overstripe: true}")
    assert _record(job, "after.yaml")["layouts"][0]["parts"][0]["pattern"] == "raid0,overstriped"
    job = machine.submit(small, "-S", "site.layout={stripe_count: 5, overstripe: true}")
    assert _record(job, "after.yaml")["layouts"][0]["parts"][0]["pattern"] == "raid0", "eight targets are enough"


@pytest.mark.parametrize(
    ("lie", "asked", "message"),
    [
        ("directory", "{stripe_count: 4}", "1 stripe, requested: 4"),
        ("files", "{stripe_count: 4}", "6 of 6 files, such as"),
        ("wrapper", "{stripe_count: -1}", "requested: all targets"),
    ],
)
def test_a_layout_that_is_not_as_asked_makes_the_job_invalid(
    run: Run, small: Path, tmp_path: Path, lie: str, asked: str, message: str
) -> None:
    machine = Machine(run, tmp_path, lies=lie)
    job = machine.submit(small, "-S", f"site.layout={asked}", code=3)
    assert job["state"] == "failed"
    assert not [entry for entry in job["runs"] if entry["kind"] == "measure"], "nothing is measured in vain"
    assert message in "; ".join(_record(job, "after.yaml")["faults"])
    shown = machine.run("dlio-hpc", "report", job["archive"])
    assert shown.code == 3
    assert "the layout is not the requested one" in shown.err
    assert message in " ".join(shown.out.split())


def test_more_stripes_than_targets_are_told(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path, osts=3)
    job = machine.submit(small, "-S", "site.layout={stripe_count: 8}", code=3)
    assert "3 stripes, requested: 8 (3 targets exist)" in "; ".join(_record(job, "after.yaml")["faults"])


def test_a_layout_left_alone_is_recorded_all_the_same(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path)
    job = machine.submit(small)
    assert machine.calls("setstripe") == []
    after = _record(job, "after.yaml")
    assert (after["asked"], after["looked_at"]) == (None, 6)
    assert (
        "Lustre, no layout requested; read back: 6 files with 1 stripe"
        in machine.run("dlio-hpc", "report", job["directory"]).out
    )


@pytest.mark.parametrize(
    ("policy", "asked", "message", "code"),
    [
        ({"version": "2.12.9"}, "{stripe_count: 4, overstripe: true}", "needs a Lustre client of 2.13 or newer", 2),
        ({}, "{stripe_count: 4, pool: nope}", "has no pool 'nope'; existing pools: flash", 2),
        ({}, "{stripe_count: 4, stripe_index: 99}", "lfs setstripe -c 4 -i 99", 6),
    ],
)
def test_a_layout_that_cannot_be_set_ends_the_job(
    run: Run, small: Path, tmp_path: Path, policy: Any, asked: str, message: str, code: int
) -> None:
    job = Machine(run, tmp_path, **policy).submit(small, "-S", f"site.layout={asked}", code=6)
    assert job["state"] == "failed"
    directory = Path(job["directory"])
    assert message in (directory / "job.err").read_text()
    assert (directory / "exit_status").read_text() == f"{code}\n"


def test_without_lfs_a_layout_cannot_be_set(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path)
    (tmp_path / "bin" / "lfs").unlink()
    assert machine.submit(small)["state"] == "completed", "none was asked for"
    job = machine.submit(small, *_ASKED, code=6)
    assert "so no layout can be set" in (Path(job["directory"]) / "job.err").read_text()


def test_what_is_not_lustre_is_said_once_and_lfs_is_left_alone(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path)
    done = machine.run("dlio-submit", small, "-s", "local", "-d", tmp_path / "elsewhere", "--wait", "--json", *_ASKED)
    assert done.code == 0
    directory = Path(done.job["directory"])
    assert (directory / "job.out").read_text().count("not Lustre: no layout is set") == 1
    assert standin.calls(machine.state) == []
    for name in ("before.yaml", "after.yaml"):
        assert _record(done.job, name)["file_system"]["kind"] != "lustre"


_ON_MDTS = "site.layout={directories: {count: 2, inherit: 1}}"


def test_folders_are_on_several_mdts_before_ranks_write(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path, mdts=4)
    asked = ("-S", _ON_MDTS, "-S", "dataset.subfolders=[2, 2]")
    job = machine.submit(small, *asked)
    folder = job["runs"][0]["result"]["generated"]["dataset"]
    assert machine.calls("mkdir") == [["mkdir", "-c", "2", folder]]
    assert machine.calls("setdirstripe") == [["setdirstripe", "-D", "-c", "2", "--max-inherit", "1", folder]]
    assert machine.calls("setstripe") == [], "the layout of files was not asked for"
    assert _record(job, "before.yaml")["folder"] is None
    after = _record(job, "after.yaml")
    assert after["folder"] == {"count": 2, "index": 0, "hash": "crush", "inherit": None}
    assert after["new_subfolders"] == {"count": 2, "index": -1, "hash": "none", "inherit": 1}
    assert [(kind["folders"], kind["layout"]["count"]) for kind in after["subfolders"]] == [(4, 0), (2, 2)]
    assert after["faults"] == []
    shown = " ".join(machine.run("dlio-hpc", "report", job["archive"]).out.split())
    assert "requested: folder on 2 MDTs, inherited by 1 level of subfolders; read back: 6 files with 1 stripe" in shown
    assert "folder on 2 MDTs; 4 subfolders on 1 MDT; 2 subfolders on 2 MDTs" in shown
    again = machine.submit(small, *asked)
    assert again["runs"][0]["result"]["generated"]["reused"]
    assert len(machine.calls("mkdir")) == 1
    assert _record(again, "after.yaml")["folder"]["count"] == 2


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"mdts": 4, "lies": "mdts"}, "on 1 MDT, requested: on 2 MDTs"),
        ({"mdts": 1}, "on 1 MDT, requested: on 2 MDTs (1 MDT exists)"),
    ],
)
def test_folders_on_other_mdts_than_asked_make_the_job_invalid(
    run: Run, small: Path, tmp_path: Path, policy: Any, message: str
) -> None:
    job = Machine(run, tmp_path, **policy).submit(small, "-S", _ON_MDTS, code=3)
    assert job["state"] == "failed"
    assert not [entry for entry in job["runs"] if entry["kind"] == "measure"]
    faults = _record(job, "after.yaml")["faults"]
    assert message in faults[0]
    assert not [fault for fault in faults if "existing folder" in fault], "the job itself created the folder"


def test_a_folder_that_exists_keeps_its_mdts(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path, mdts=4)
    asked = Layout(directories=Directories(count=2, inherit=1))
    folder = machine.mount / "data" / fingerprints.folder_name(plan.resolved(workload.load(str(small))).dataset, asked)
    folder.mkdir(parents=True)
    job = machine.submit(small, "-S", _ON_MDTS, code=3)
    assert machine.calls("mkdir") == []
    different, advice = _record(job, "after.yaml")["faults"]
    assert different == f"{folder}: on 1 MDT, requested: on 2 MDTs"
    assert "an existing folder keeps its MDTs: remove it" in advice


def test_subfolders_on_other_mdts_are_told(run: Run, small: Path, tmp_path: Path) -> None:
    """The subfolders were moved after the dataset was generated, as by lfs migrate."""
    machine = Machine(run, tmp_path, mdts=4)
    asked = ("-S", _ON_MDTS, "-S", "dataset.subfolders=[3]")
    machine.submit(small, *asked)
    state = machine.state / "layouts.json"
    kept = json.loads(state.read_text())
    path = next(path for path in kept["folders"] if path.endswith("/00001"))
    kept["folders"][path]["layout"]["count"] = 3
    state.write_text(json.dumps(kept))
    (fault,) = _record(machine.submit(small, *asked, code=3), "after.yaml")["faults"]
    assert fault == "1 of 3 subfolders, such as 00001: on 3 MDTs, requested: on 2 MDTs"


def test_without_permission_no_folder_is_placed(run: Run, small: Path, tmp_path: Path) -> None:
    job = Machine(run, tmp_path, mdts=4, anyone=False).submit(small, "-S", _ON_MDTS, code=6)
    directory = Path(job["directory"])
    errors = " ".join((directory / "job.err").read_text().split())
    assert "lfs mkdir -c 2" in errors
    assert "Operation not permitted" in errors
    assert "unless mdt.*.enable_remote_dir_gid on the servers is -1 or the number of your group" in errors
    assert (directory / "exit_status").read_text() == "6\n"


def test_the_preflight_of_directories(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path, mdts=2)
    check = ("dlio-hpc", "check", small, "-s", "local", "-d", machine.mount / "data", "--no-launch", "-S")
    done = machine.run(*check, _ON_MDTS)
    assert done.code == 0, done.out
    shown = " ".join(done.out.split())
    assert "folder on 2 MDTs, inherited by 1 level of subfolders; Lustre client 2.15.5" in shown
    assert "note MDTs the file system has 2 MDTs. Only root may place directories on metadata targets" in shown
    for asked, message in (
        ("{count: 3}", "directories on 3 MDTs are requested, but the file system has 2 MDTs; lower directories.count"),
        ("{index: 2}", "directories.index is 2, but the file system has 2 MDTs, and none has this number"),
    ):
        faulty = machine.run(*check, f"site.layout={{directories: {asked}}}")
        assert faulty.code == 2
        assert message in " ".join(faulty.out.split())


def test_the_preflight_on_lustre(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path, osts=6, degraded=[2], quota=(0, 400))
    check = ("dlio-hpc", "check", small, "-s", "local", "-d", machine.mount / "data", "--no-launch")
    done = machine.run(*check, *_ASKED)
    assert done.code == 0, done.out + done.err
    for text in (
        "ok     file system   ", "lustre, mounted at", "4 stripes of 2 MiB in pool flash; Lustre client 2.15.5",
        "note   targets       1 of 6 targets are flagged: 2 (D)", "flash has 6 targets", "400 KiB used, no limit",
    ):  # fmt: skip
        assert text in done.out, done.out
    for asked, message in (
        ("{stripe_count: 48}", "48 stripes are requested, but the file system has 6 targets"),
        ("{pool: nope}", "has no pool 'nope'"),
    ):
        faulty = machine.run(*check, "-S", f"site.layout={asked}")
        assert faulty.code == 2
        assert message in faulty.out
    document_ = machine.run(*check, "--json").json
    assert {"verdict", "what", "text"} == set(document_["findings"][0])
    assert json.dumps(document_)


def test_the_preflight_names_every_folder_that_cannot_be_written(run: Run, small: Path) -> None:
    """Nobody can create files in /proc, not even root."""
    done = run("dlio-hpc", "check", small, "-s", "local", "-d", "/proc/a", "-o", "/proc/b", "--no-launch")
    assert done.code == 6
    faults = [line for line in done.out.splitlines() if line.startswith("fault  folders")]
    assert [line.split()[2] for line in faults] == ["--data", "--runs", "--archive"]
    assert "cannot create files in /proc" in faults[0]


def test_the_preflight_counts_quota_and_space(run: Run, small: Path, tmp_path: Path) -> None:
    machine = Machine(run, tmp_path, quota=(500, 400))
    check = ("dlio-hpc", "check", small, "-s", "local", "-d", machine.mount / "data", "--no-launch")
    done = machine.run(*check)
    assert done.code == 2
    assert "of 512000 bytes are used; the job needs 367200 more" in done.out
    huge = machine.run(*check, "-S", "dataset.sample={bytes: 1 TiB}")
    assert "free; choose another --data or a smaller --dataset-size" in huge.out
