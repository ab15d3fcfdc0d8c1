"""The stand-in for lfs answers as lfs does, so that tests with it hold for lfs."""

import io
import os
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.standins import lfs

MIB = 1 << 20


class Site:
    """A mount point with an lfs of its own."""

    def __init__(self, folder: Path, **policy: Any) -> None:
        self.mount = folder / "lus"
        self.data = self.mount / "data"
        self.data.mkdir(parents=True)
        self.state = folder / "state"
        self.command = folder / "bin" / "lfs"
        lfs.install(folder / "bin", self.state, mount=self.mount, **policy)

    def call(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Run the command in this process, as starting Python takes longer than all the rest."""
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            code = lfs.main(self.state, arguments := [str(word) for word in command])
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())

    def says(self, *command: object) -> str:
        done = self.call(*command)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def layout(self, path: Path) -> Any:
        return yaml.safe_load(self.says("getstripe", *(["-d"] if path.is_dir() else []), "-y", path))

    def file(self, name: str, size: int = 10) -> Path:
        path = self.data / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as out:
            out.truncate(size)
        return path


Make = Callable[..., Site]


@pytest.fixture
def site(tmp_path: Path) -> Make:
    return lambda **policy: Site(tmp_path, **policy)


def test_a_directorys_default_is_for_files_that_come_later(site: Make) -> None:
    here = site()
    early = here.file("early")
    assert here.says("setstripe", "-c", 4, "-S", "4M", "-p", "flash", here.data) == ""
    assert here.says("getstripe", "-d", "-y", here.data) == (
        "stripe_count:  4\nstripe_size:   4194304\npattern:       raid0\nstripe_offset: -1\npool:          flash\n\n"
    )
    assert here.layout(early)["lmm_stripe_count"] == 1
    late = here.says("getstripe", "-y", here.file("late"))
    assert late == (
        "lmm_stripe_count:  4\nlmm_stripe_size:   4194304\nlmm_pattern:       raid0\nlmm_layout_gen:    0\n"
        "lmm_stripe_offset: 1\nlmm_pool:          flash\nlmm_objects:\n"
        "      - l_ost_idx: 1\n        l_fid:     0x100010000:0x2:0x0\n"
        "      - l_ost_idx: 2\n        l_fid:     0x100020000:0x3:0x0\n"
        "      - l_ost_idx: 3\n        l_fid:     0x100030000:0x4:0x0\n"
        "      - l_ost_idx: 4\n        l_fid:     0x100040000:0x5:0x0\n\n"
    )
    assert [o["l_ost_idx"] for o in here.layout(here.file("later"))["lmm_objects"]] == [5, 6, 7, 0]


def test_only_new_directories_inherit(site: Make) -> None:
    here = site()
    old = here.file("old/x").parent
    here.says("setstripe", "-c", 2, here.data)
    assert here.layout(old)["stripe_count"] == here.layout(here.file("old/y"))["lmm_stripe_count"] == 1
    assert here.layout(here.file("new/x"))["lmm_stripe_count"] == 2


def test_counts_become_what_there_is(site: Make) -> None:
    here = site(osts=5, pools={"flash": [3, 4]})
    for options, count, first in (
        (["-c", -1], 5, 0),
        (["-c", 48], 5, 0),
        (["-c", -1, "-p", "flash"], 2, 3),
        (["-C", 9], 9, 2),
        (["-c", 2, "-i", 4], 2, 4),
    ):
        here.says("setstripe", *options, here.data)
        got = here.layout(here.file("-".join(map(str, options))))
        assert (got["lmm_stripe_count"], len(got["lmm_objects"]), got["lmm_stripe_offset"]) == (count, count, first)
    assert here.call("setstripe", "-i", 5, here.data).returncode == 22
    here.says("setstripe", "-C", 9, here.data)
    assert here.layout(here.data)["pattern"] == here.layout(here.file("o"))["lmm_pattern"] == "raid0,overstriped"


PFL = ("-E", "4M", "-c", 1, "-S", "1M", "-E", "256M", "-c", 4, "-E", "eof", "-c", -1, "-S", "4M", "-p", "flash")


@pytest.mark.parametrize(("version", "old"), [("2.12.9", True), ("2.15.5", True), ("2.16.1", False)])
def test_components(site: Make, version: str, old: bool) -> None:
    here = site(version=version)
    here.says("setstripe", *PFL, here.data)
    shown = here.layout(here.data)
    parts = [shown[f"component{i}"] for i in range(3)] if old else shown["components"]
    assert shown["lcm_entry_count"] == 3
    assert [part["lcme_extent.e_end"] for part in parts] == [4 * MIB, 256 * MIB, "EOF"]
    assert [part["lcme_extent.e_start"] for part in parts] == [0, 4 * MIB, 256 * MIB]
    assert {part["lcme_id"] for part in parts} == {"N/A"}
    assert [part["sub_layout"]["stripe_count"] for part in parts] == [1, 4, -1]
    assert [part["sub_layout"]["stripe_size"] for part in parts] == [MIB, MIB, 4 * MIB]
    assert [part["sub_layout"].get("pool") for part in parts] == [None, None, "flash"]
    path = here.file("f", 5 * MIB)
    shown = here.layout(path)
    parts = [shown[f"component{i}"] for i in range(3)] if old else shown["components"]
    assert [part["lcme_flags"] for part in parts] == ["init", "init", 0]
    assert [len(part["sub_layout"].get("lmm_objects", [])) for part in parts] == [1, 4, 0]
    assert parts[2]["sub_layout"]["lmm_stripe_count"] == -1
    os.truncate(path, 300 * MIB)
    shown = here.layout(path)
    last = shown["component2"] if old else shown["components"][2]
    assert (last["lcme_flags"], last["sub_layout"]["lmm_stripe_count"]) == ("init", 8)


def test_options_carry_over_to_the_next_component(site: Make) -> None:
    here = site()
    here.says("setstripe", "-E", "1M", "-L", "mdt", "-E", "64M", "-c", 2, "-p", "flash", "-E", -1, here.data)
    shown = here.layout(here.data)
    first, second, third = (shown[f"component{i}"]["sub_layout"] for i in range(3))
    assert first == {"stripe_count": 0, "stripe_size": MIB, "pattern": "mdt", "stripe_offset": -1}
    assert second == third
    assert (third["stripe_count"], third["stripe_size"], third["pool"]) == (2, MIB, "flash")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["-c", "x"], 4, "lfs setstripe: invalid stripe count 'x'"),
        (["-i", "-2"], 4, "invalid stripe offset"),
        (["-S", "100K"], 4, "invalid stripe size '100K'"),
        (["-S", "4G"], 22, "over 4GB limit"),
        (["-p", "a" * 16], 22, "Invalid Poolname"),
        (["-E", "100", "-c", "1"], 4, "invalid component end '100'"),
        (["-E", "8M", "-S", "1M", "-E", "4M"], 1, "Component end is before end of previous"),
        (["-E", "5M", "-S", "4M", "-E", "-1"], 1, "must be aligned by the stripe size"),
        (["-L", "mdt"], 22, "must be specified with -E"),
        (["-E", "2G", "-L", "mdt"], 27, "too big"),
        (["-Q"], 4, "unrecognized option '-Q'"),
    ],
)
def test_refusals_change_nothing(site: Make, options: list[str], code: int, message: str) -> None:
    here = site()
    before = here.layout(here.data)
    done = here.call("setstripe", *options, here.data)
    assert done.returncode == code
    assert message in done.stderr
    assert here.layout(here.data) == before


def test_sizes(site: Make) -> None:
    here = site()
    for text in ("1M", "1m", "1024K", "1048576", "1024"):
        here.says("setstripe", "-S", text, here.data)
        assert here.layout(here.data)["stripe_size"] == MIB, text


@pytest.mark.parametrize(
    ("version", "command"),
    [
        ("2.12.9", ["setstripe", "-C", "4"]),
        ("2.9.0", ["setstripe", "-E", "-1", "-c", "1"]),
        ("2.10.8", ["getstripe", "-d", "-y"]),
        ("2.10.8", ["setstripe", "-E", "1M", "-L", "mdt"]),
    ],
)
def test_old_versions_know_no_new_options(site: Make, version: str, command: list[str]) -> None:
    here = site(version=version)
    done = here.call(*command, here.data)
    assert done.returncode == 4
    assert "unrecognized option" in done.stderr
    assert here.says("--version") == f"lfs {version}\n"


@pytest.mark.parametrize(("version", "code"), [("2.12.9", 22), ("2.15.5", 0), ("2.16.1", 22)])
def test_unknown_pools_are_refused_but_by_2_15(site: Make, version: str, code: int) -> None:
    here = site(version=version)
    done = here.call("setstripe", "-p", "nope", here.data)
    assert done.returncode == code
    assert ("does not exist" in done.stderr) == bool(code)
    assert here.layout(here.data).get("pool") == (None if code else "nope")


def test_elsewhere(site: Make, tmp_path: Path) -> None:
    here = site()
    away = tmp_path / "away"
    away.mkdir()
    for command, code in (
        (["setstripe", "-c", "1", away], 25),
        (["getstripe", "-d", "-y", away], 25),
        (["df", away], 95),
        (["quota", "-q", "-u", "0", away], 19),
        (["setstripe", "-c", "1", away / "no" / "x"], 2),
        (["getstripe", "-y", away / "no"], 2),
        (["df", away / "no"], 2),
    ):
        done = here.call(*command)
        assert done.returncode == code, (command, done)


def test_lies(tmp_path: Path) -> None:
    for lie, count, stripes, pool in (("directory", 1, 1, None), ("files", -1, 1, None), ("wrapper", 8, 8, "capacity")):
        here = Site(tmp_path / lie, lies=lie)
        here.says("setstripe", "-c", -1, "-S", "4M", here.data)
        assert here.layout(here.data)["stripe_count"] == count
        assert here.layout(here.data).get("pool") == pool
        assert here.layout(here.file("x"))["lmm_stripe_count"] == stripes


def test_lists(site: Make) -> None:
    here = site(osts=3, degraded=[1], inactive=[2], pools={"flash": [0], "disk": [1, 2]}, quota=(2000, 2500))
    rows = here.says("df", here.data).splitlines()
    assert rows[0] == "UUID                   1K-blocks        Used   Available Use% Mounted on"
    assert [row.split()[0] for row in rows[1:4]] == ["lus-MDT0000_UUID", "lus-OST0000_UUID", "lus-OST0001_UUID"]
    assert rows[2].endswith(f" {here.mount}[OST:0]")
    assert rows[3].endswith(f" {here.mount}[OST:1] D")
    assert (rows[4], rows[5].split()[:2]) == ("", ["filesystem_summary:", str(2 * (1 << 30) + 1000)])
    assert here.says("pool_list", "lus") == "Pools from lus:\nlus.flash\nlus.disk\n"
    assert here.says("pool_list", "lus.disk") == "Pool: lus.disk\nlus-OST0001_UUID\nlus-OST0002_UUID\n"
    assert here.call("pool_list", "lus.nope").returncode == 2
    assert here.says("quota", "-q", "-u", 0, here.data).split()[-8:] == ["2500*", "0", "2000", "-", "7", "0", "0", "-"]
    assert here.call("quota", "-q", "-u", "nobody-here", here.data).returncode == 4
    assert here.call("nope").returncode == 70
    unkept = Site(here.mount / "unkept").call("quota", "-q", "-u", 0, here.mount / "unkept" / "lus")
    assert (unkept.returncode, unkept.stderr) == (3, "user quotas are not enabled.\n")


def test_calls_are_kept_and_may_come_at_once(site: Make) -> None:
    here = site()
    assert lfs.calls(here.state) == []
    here.says("setstripe", "-c", 1, here.data)
    paths = [here.file(f"f{number}") for number in range(8)]
    running = [subprocess.Popen([here.command, "getstripe", "-y", path], stdout=subprocess.PIPE) for path in paths]
    offsets = [yaml.safe_load(process.communicate(timeout=20)[0])["lmm_stripe_offset"] for process in running]
    assert sorted(offsets) == list(range(8))
    assert lfs.calls(here.state)[0] == ["setstripe", "-c", "1", str(here.data)]
    assert len(lfs.calls(here.state)) == 9


def test_a_file_made_anew_is_new(site: Make) -> None:
    here = site()
    path = here.file("x")
    assert here.layout(path)["lmm_stripe_count"] == 1
    path.unlink()
    here.says("setstripe", "-c", 3, here.data)
    assert here.layout(here.file("x"))["lmm_stripe_count"] == 3


def _on_mdts(text: str) -> dict[str, str]:
    return dict(line.split(": ") for line in text.splitlines() if line.startswith("lmv_"))


def test_a_directory_on_mdts_is_shown_as_lfs_shows_it(site: Make) -> None:
    here = site(mdts=3)
    folder = here.data / "striped"
    assert here.says("mkdir", "-c", 2, "-i", 2, "-H", "fnv_1a_64", folder) == ""
    assert folder.is_dir()
    table = "mdtidx\t\t FID[seq:oid:ver]\n     2\t\t [0x200000400:0x1:0x0]\t\t\n     0\t\t [0x200000401:0x1:0x0]\t\t\n"
    assert here.says("getdirstripe", folder) == (
        f"lmv_stripe_count: 2 lmv_stripe_offset: 2 lmv_hash_type: fnv_1a_64\n{table}"
    )
    assert here.says("getdirstripe", "-y", folder) == (
        f"lmv_stripe_count: 2\nlmv_stripe_offset: 2\nlmv_hash_type: fnv_1a_64\n{table}"
    )
    assert here.says("getdirstripe", here.data) == "lmv_stripe_count: 0 lmv_stripe_offset: 0 lmv_hash_type: none\n"
    assert here.says("getdirstripe", "-D", folder) == (
        "lmv_stripe_count: 0 lmv_stripe_offset: -1 lmv_hash_type: none lmv_max_inherit: -1 lmv_max_inherit_rr: 0\n\n"
    )


@pytest.mark.parametrize(("levels", "counts"), [(0, [0, 0, 0]), (1, [2, 0, 0]), (2, [2, 2, 0]), (-1, [2, 2, 2])])
def test_subdirectories_get_the_default_so_many_levels_down(site: Make, levels: int, counts: list[int]) -> None:
    here = site(mdts=3)
    (here.data / "old").mkdir()
    here.says("setdirstripe", "-D", "-c", 2, "--max-inherit", levels, here.data)
    assert _on_mdts(here.says("getdirstripe", "-D", "-y", here.data))["lmv_max_inherit"] == str(levels)
    (here.data / "a/b/c").mkdir(parents=True)
    shown = [_on_mdts(here.says("getdirstripe", "-y", here.data / path)) for path in ("a", "a/b", "a/b/c", "old", "")]
    assert [int(one["lmv_stripe_count"]) for one in shown] == [*counts, 0, 0]


def test_there_are_never_more_stripes_than_mdts(tmp_path: Path) -> None:
    for mdts, asked, count in ((3, 8, 3), (3, -1, 3), (1, 8, 0), (1, 1, 1), (3, 1, 1)):
        here = Site(tmp_path / f"{mdts}{asked}", mdts=mdts)
        here.says("mkdir", "-c", asked, here.data / "new")
        assert _on_mdts(here.says("getdirstripe", "-y", here.data / "new"))["lmv_stripe_count"] == str(count)
    rows = here.says("df", here.data).splitlines()
    assert [row.split()[0] for row in rows[1:4]] == [f"lus-MDT000{number}_UUID" for number in range(3)]


@pytest.mark.parametrize(
    ("policy", "command", "code", "message"),
    [
        ({}, ["mkdir", "-c", "2", "data"], 17, "dirstripe error on 'data': stripe already set"),
        ({}, ["mkdir", "-c", "2", "data"], 17, "lfs setdirstripe: cannot create dir 'data': File exists"),
        ({"anyone": False}, ["mkdir", "-c", "1", "data/x"], 1, "dirstripe error on 'data/x': Operation not permitted"),
        ({"anyone": False}, ["mkdir", "-c", "1", "data"], 1, "Operation not permitted"),
        ({"anyone": False}, ["setdirstripe", "-D", "-c", "1", "data"], 1, "cannot set default stripe on dir 'data'"),
        ({}, ["mkdir", "-i", "9", "data/x"], 19, "No such device"),
        ({}, ["mkdir", "-c", "2", "no/x"], 2, "No such file"),
        ({}, ["mkdir", "-c", "2", "../x"], 19, "No such device"),
        ({}, ["mkdir", "-c", "x", "data/x"], 4, "invalid stripe count 'x'"),
        ({}, ["mkdir", "-H", "md5", "data/x"], 4, "bad stripe hash type 'md5'"),
        ({"version": "2.12.9"}, ["mkdir", "-c", "2", "-H", "crush", "data/x"], 4, "bad stripe hash type 'crush'"),
        ({"version": "2.14.0"}, ["setdirstripe", "-D", "--max-inherit", "1", "data"], 4, "unrecognized option"),
        ({}, ["setdirstripe", "-D", "--max-inherit", "251", "data"], 4, "max-inherit"),
        ({}, ["mkdir", "-c", "2"], 4, "DIR must be specified"),
        ({}, ["getdirstripe", "../away"], 25, "not on a Lustre fs?"),
    ],
)
def test_refusals_of_directories(
    site: Make, monkeypatch: pytest.MonkeyPatch, policy: Any, command: list[str], code: int, message: str
) -> None:
    here = site(mdts=3, **policy)
    (here.mount.parent / "away").mkdir()
    monkeypatch.chdir(here.mount)
    done = here.call(*command)
    assert (done.returncode, message in done.stderr) == (code, True), done
    assert not (here.data / "x").exists()
