"""Profiles, workloads and defaults in the folders of a user or a facility are used before the shipped ones."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.config import shipped
from tests.conftest import Outcome, Run

_SITES, _WORKLOADS = Path("site_profiles"), Path("share", "workloads")


class Login:
    """A user of a facility: its folder is `site`, the user's own `home`/dlio-hpc."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.site, self.home = folder / "site", folder / "home"
        self.own = self.home / "dlio-hpc"
        self.own.mkdir(parents=True)
        self.site.mkdir()
        self._run = run

    def __call__(self, *arguments: object, **environment: str) -> Outcome:
        usual = {"DLIO_HPC_SITE_PATH": str(self.site), "XDG_CONFIG_HOME": str(self.home), "USER": "me"}
        return self._run(*arguments, **usual | environment)

    def dry(self, *arguments: object, **environment: str) -> Any:
        """Return the job of a dry submission, with its script."""
        done = self("dlio-submit", *arguments, "--dry-run", "--json", **environment)
        assert done.code == 0, done.err
        return done.job

    @staticmethod
    def profile(folder: Path, name: str, copied: str = "slurm", change: Callable[[str], str] = str) -> Path:
        return _copy(folder / "site_profiles" / f"{name}.yaml", _SITES / f"{copied}.yaml", change)

    @staticmethod
    def workload(folder: Path, name: str, change: Callable[[str], str] = str) -> Path:
        return _copy(folder / "workloads" / f"{name}.yaml", _WORKLOADS / "demo.yaml", change)


def _copy(path: Path, original: Path, change: Callable[[str], str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(change((shipped.root() / original).read_text()))
    return path


def _with_ranks(ranks: str) -> Callable[[str], str]:
    return lambda text: text.replace("ranks_per_node: 4", f"ranks_per_node: {ranks}")


def _described(description: str) -> Callable[[str], str]:
    return lambda text: text.replace("ALCF Polaris", description)


@pytest.fixture
def login(run: Run, tmp_path: Path) -> Login:
    return Login(run, tmp_path)


def _entry(listed: str, start: str) -> str:
    """Return the entry of a list that begins with `start` as one line."""
    (entry,) = re.findall(rf"^{re.escape(start)}.*(?:\n {{9,}}.*)*", listed, re.MULTILINE)
    return " ".join(entry.split())


def test_a_facilitys_profile_and_workload_are_used_by_name(login: Login, tmp_path: Path) -> None:
    login.profile(login.site, "mine", change=_with_ranks("3"))
    login.workload(login.site, "small", lambda text: text.replace("name: demo", "name: small"))
    made = login.dry("small", "-s", "mine", "-d", tmp_path / "data")
    assert "--ntasks-per-node=3\n" in made["script"]
    assert made["job"].startswith("small-")
    listed = login("dlio-hpc", "sites").out
    assert f"[{login.site}]" in _entry(listed, "  mine ")
    assert f"[{login.site}]" in _entry(login("dlio-hpc", "workloads").out, "small ")
    shown = login("dlio-hpc", "sites", "mine").out
    assert "ranks_per_node: 3" in shown
    files = {one["name"]: one["file"] for one in login("dlio-hpc", "sites", "--json").json["sites"]}
    assert files["mine"] == str(login.site / "site_profiles" / "mine.yaml")
    assert files["slurm"] == str(shipped.root() / "site_profiles" / "slurm.yaml")
    unknown = login("dlio-submit", "smal", "--dry-run")
    assert unknown.code == 2
    assert "did you mean 'small'" in unknown.err


def test_a_facilitys_name_wins_over_a_shipped_one_and_a_users_over_both(login: Login) -> None:
    line = "  polaris      pbs      "
    for folder, text in ((login.site, "of the facility"), (login.own, "of the user")):
        login.profile(folder, "polaris", "polaris", _described(text))
        entry = _entry(login("dlio-hpc", "sites").out, line)
        assert text in entry
        assert entry.endswith(f"[{folder}, instead of the shipped one]")


def test_folders_are_searched_in_their_order(login: Login, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for folder, ranks in ((login.site, "1"), (other, "2")):
        login.profile(folder, "mine", change=_with_ranks(ranks))
    for path, ranks in ((f"{login.site}:{other}", "1"), (f"{other}::{login.site}", "2")):
        made = login.dry("demo", "-s", "mine", "-d", tmp_path, DLIO_HPC_SITE_PATH=path)
        assert f"--ntasks-per-node={ranks}\n" in made["script"]


def test_a_host_is_the_facilitys_before_it_is_a_shipped_sites(login: Login) -> None:
    login.profile(login.site, "zebra", change=lambda old: f'{old}hosts: ["*"]\n')
    assert "* zebra " in login("dlio-hpc", "sites").out


def test_studies_and_criteria_of_a_facility(login: Login, tmp_path: Path) -> None:
    (login.site / "studies").mkdir()
    original = shipped.root() / "share" / "studies" / "fig11.yaml"
    (login.site / "studies" / "ours.yaml").write_text(original.read_text().replace("name: fig11", "name: ours"))
    done = login("dlio-submit", "--study", "ours", "-s", "local", "-d", tmp_path, "--dry-run", "--json")
    assert done.code == 0, done.err
    unknown = login("dlio-submit", "--study", "nope", "--dry-run")
    assert "ours" in unknown.err


DEFAULTS = "site: mine\naccount: proj\nruns: /runs/$USER\ntime: 20m\n"


def test_defaults_stand_in_for_options_that_are_not_given(login: Login, tmp_path: Path) -> None:
    """The order is command line, environment, user, facility, shipped."""
    login.profile(login.site, "mine")
    (login.site / "defaults.yaml").write_text(DEFAULTS)
    made = login.dry("demo", "-d", tmp_path)
    assert _asked(made) == ("proj", "0:20:00")
    assert Path(made["directory"]).parent == Path("/runs/me")
    (login.own / "defaults.yaml").write_text("account: mine\ntime: 10m\n")
    made = login.dry("demo", "-d", tmp_path)
    assert _asked(made) == ("mine", "0:10:00")
    assert Path(made["directory"]).parent == Path("/runs/me")
    assert _asked(login.dry("demo", "-d", tmp_path, DLIO_HPC_ACCOUNT="environment")) == ("environment", "0:10:00")
    assert _asked(login.dry("demo", "-d", tmp_path, "-A", "line", DLIO_HPC_ACCOUNT="environment"))[0] == "line"
    listed = login("dlio-hpc", "sites").out
    assert "* mine " in listed
    assert f"default: --account mine, from {login.own / 'defaults.yaml'}" in listed
    assert f"default: --runs /runs/me, from {login.site / 'defaults.yaml'}" in listed
    assert "[default: /runs/me]" in login("dlio-submit", "--help").out


def _asked(made: Any) -> tuple[str, ...]:
    """Return account and time in the script for Slurm."""
    lines = dict(line.removeprefix("#SBATCH --").split("=", 1) for line in made["script"].splitlines() if "=" in line)
    return lines["account"], lines["time"]


def test_a_default_site_filters_no_history(login: Login, small: Path) -> None:
    """An option of the same name that means something else has no default from files."""
    (login.site / "defaults.yaml").write_text("site: slurm\n")
    assert login("dlio-submit", small, "-s", "local", "-d", "data", "--wait", "--quiet").code == 0
    assert "small" in login("dlio-hpc", "history").out


def test_a_study_is_resumed_with_what_it_was_submitted_with(login: Login, small: Path, tmp_path: Path) -> None:
    options = ("-s", "local", "-d", "data", "-P", "reader.read_threads=1,2")
    failing = ("-S", "site.setup=['[ -e ../../again ] || { touch ../../again; exit 9; }']")
    done = login("dlio-submit", small, *options, *failing, "-t", "5m", "--wait", "--json", "--quiet")
    assert done.code == 6, done.err
    (login.site / "defaults.yaml").write_text("time: 20m\n")
    again = login("dlio-submit", "--resume", done.json["study"], "--dry-run", "--json")
    assert again.code == 0, again.err
    scripts = [made["script"] for made in again.json["jobs"]]
    assert all("SECONDS >= 300 - 1" in script for script in scripts), "five minutes, as the study was submitted"


FAULTS = [
    ("defaults.yaml", "sight: mine\n", "unknown key 'sight'"),
    ("defaults.yaml", "time: soon\n", "time"),
    ("defaults.yaml", "- site\n", ""),
    ("defaults.yaml", "site: [\n", "not valid YAML"),
    ("defaults.yaml", "runs: dlio-runs\n", "runs: 'dlio-runs' is not an absolute path"),
    ("defaults.yaml", "runs: /scratch/$NOWHERE\n", "runs: $NOWHERE is not set in this environment"),
    ("site_profiles/mine.yaml", "name: mine\nsheduler: slurm\n", "sheduler"),
    ("site_profiles/mine.yaml", "hosts: 7\n", "hosts"),
    ("site_profiles/mine.yaml", "\xff", "cannot read"),
]


@pytest.mark.parametrize(("name", "content", "message"), FAULTS)
def test_a_faulty_file_of_a_facility_is_named(login: Login, name: str, content: str, message: str) -> None:
    path = login.site / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode("latin-1"))
    done = login("dlio-hpc", "sites")
    assert done.code == 2
    assert str(path) in done.err
    assert message in done.err


def test_a_folder_that_is_not_there_is_named(login: Login) -> None:
    done = login("dlio-hpc", "sites", DLIO_HPC_SITE_PATH="/nowhere/at/all")
    assert done.code == 2
    assert "DLIO_HPC_SITE_PATH: /nowhere/at/all is not a directory here" in done.err
