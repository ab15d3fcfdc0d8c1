"""The stand-in for Flux refuses what Flux refuses and ends jobs as it does."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome
from tests.support import brokers
from tests.support.standins import batch, flux

UNTIL_GO = "while [ ! -e go ]; do sleep 0.02; done"
_STATE = "{status}|{returncode}|{exception.type}|{contextual_info}|{exception.note}"


class Site:
    """The program on PATH, in a folder of its own; or the Flux that DLIO_HPC_FLUX names."""

    def __init__(self, folder: Path, real: brokers.Brokers | None, **policy: Any) -> None:
        self.folder, self.state = folder / "work", folder / "state"
        self.folder.mkdir()
        self.environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "LANG": "C.UTF-8", "MINE": "of the submitter"}
        if real is not None:
            self.environment |= real.environment
        else:
            flux.install(folder / "bin", self.state, **{"grace": 0.5} | policy)

    def __call__(self, *arguments: object, **environment: str) -> Outcome:
        done = subprocess.run(
            ["flux", *map(str, arguments)], cwd=self.folder, env=self.environment | environment,
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Outcome(done.returncode, done.stdout, done.stderr)

    def script(self, text: str, *directives: str) -> None:
        (self.folder / "job.sh").write_text("\n".join(["#!/bin/bash", *directives, text, ""]))

    def submit(self, text: str, *options: object, directives: tuple[str, ...] = ()) -> str:
        self.script(text, *directives)
        done = self("batch", "-N1", "--output=out", "--error=err", *options, "job.sh")
        assert done.code == 0, done.err
        return done.out.strip()

    def told(self, name: str) -> str:
        return self("jobs", "-no", _STATE, name).out.strip()

    def until(self, condition: Callable[[], bool]) -> None:
        patience = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < patience
            time.sleep(0.02)

    def end(self, name: str) -> str:
        """The facts of the job when it has ended, without its nodes. The code of one that was to end is left out: it
        is the script's, or 137 where Flux itself took longer than its grace.
        """
        self.until(lambda: self.told(name).partition("|")[0] in flux._ENDED)
        status, code, kind, _, note = self.told(name).split("|", 4)
        return "|".join([status, "" if kind in {"timeout", "cancel"} else code, kind, note])

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def site(tmp_path: Path, real_flux: brokers.Brokers | None) -> Site:
    return Site(tmp_path, real_flux)


REFUSED = [
    ("-N1 -q nope", "flux-batch: ERROR: Invalid queue 'nope' specified", 1),
    ("-N3", "flux-batch: ERROR: requested nnodes (3) exceeds policy limit of 2 for queue debug", 1),
    ("-N1 -t 2h", "flux-batch: ERROR: requested duration (2h) exceeds policy limit of 1h for queue debug", 1),
    ("-N1 -t abc", "flux-batch: ERROR: invalid Flux standard duration", 1),
    ("-N1 --bogus", "flux batch: error: unrecognized arguments: --bogus", 2),
    ("", "flux-batch: ERROR: Number of slots to allocate must be specified", 1),
    ("-N1 --urgency=99", "flux-batch: ERROR: urgency range is [0:31]", 1),
    ("-N1 --dependency=afterok:fAAAA", "flux-batch: ERROR: dependency: afterok: id fAAAA: job not found", 1),
    ("-N1 --dependency=begin-time:abc", "flux-batch: ERROR: Invalid begin-time=abc", 1),
    ("-N1 --dependency=begin-time:-5", "flux-batch: ERROR: Invalid begin-time=-5", 1),
    ("-N1 --dependency=afterok:zzz", 'flux-batch: ERROR: dependency: afterok: "zzz" is not a valid jobid', 1),
]


@pytest.mark.parametrize(("arguments", "message", "code"), REFUSED)
def test_refusals(site: Site, arguments: str, message: str, code: int) -> None:
    site.script("true")
    done = site("batch", *arguments.split(), "job.sh")
    assert (done.code, done.out) == (code, "")
    assert message in done.err


DIRECTIVES = [
    (("# flux: -N1", "#flux: -n1"), "line 3: sentinel changed from '# flux:' to '#flux:'", 1),
    (("# flux: -N1", "true", "# flux: -x"), "line 4: orphan 'flux:' detected: directives disabled after line", 1),
    (('# flux: --job-name="a',), 'line 2:  --job-name="a: No closing quotation', 1),
    (("# flux: --bogus",), "argument parsing failed at job.sh line 2", 2),
    (("# flux: other.sh",), "line 2: Unknown directive:  other.sh", 1),
]


@pytest.mark.parametrize(("lines", "message", "code"), DIRECTIVES)
def test_directives_that_are_refused(site: Site, lines: tuple[str, ...], message: str, code: int) -> None:
    site.script("true", *lines)
    done = site("batch", "--dry-run", "job.sh")
    assert (done.code, message in done.err) == (code, True), done.err


def test_directives_have_quotes_and_comments_and_the_command_line_wins(site: Site) -> None:
    lines = ("# flux: --job-name='a b' # -N9", "# a comment", "# flux: --time-limit=60s --setattr=bank=proj")
    name = site.submit(UNTIL_GO, "-t", "90s", directives=lines)
    fields = "{name}|{duration}|{bank}|{queue}|{nnodes}"
    site.until(lambda: "RUN" in site.told(name))
    assert site("jobs", "-no", fields, name).out == "a b|90.0|proj|debug|1\n"
    (site.folder / "go").touch()
    assert site.end(name) == "COMPLETED|0||"


def test_a_script_without_its_first_line(site: Site) -> None:
    (site.folder / "job.sh").write_text("# flux: -N1\nhostname\n")
    done = site("batch", "job.sh")
    assert (done.code, "does not appear to start with '#!'" in done.err) == (1, True)
    assert "No such file or directory" in site("batch", "-N1", "nothing.sh").err


def test_what_a_job_finds(site: Site) -> None:
    """A job has its submitter's folder and environment, a variable that names the job, and the time that is left."""
    name = site.submit(
        'pwd; echo "$MINE $FLUX_ENCLOSING_ID $FLUX_JOB_ID."; flux job timeleft; echo no >&2', "-t", "10m"
    )
    assert name.startswith("ƒ")
    assert site.end(name) == "COMPLETED|0||"
    place, mine, left = site.text("out").splitlines()
    assert (place, mine) == (str(site.folder), f"of the submitter {name} .")
    assert 560 < int(left) <= 600
    assert "no\n" in site.text("err")


def test_ids_are_plain_where_the_locale_is(site: Site) -> None:
    site.script("true")
    done = site("batch", "-N1", "job.sh", LANG="C", LC_ALL="C")
    assert done.out.startswith("f")
    assert site("jobs", "-no", "{id.f58plain}", done.out.strip()).out == done.out


ENDS = [
    ("exit 7", "FAILED|7||"),
    ("kill -9 $$", "FAILED|137||"),
    ("sleep 99", "TIMEOUT||timeout|resource allocation expired"),
    ("trap '' HUP; trap 'echo ALRM >> told; exit 3' ALRM; sleep 99", "TIMEOUT||timeout|resource allocation expired"),
    ("trap '' ALRM HUP TERM; sleep 99 & wait; sleep 99", "TIMEOUT||timeout|resource allocation expired"),
]


@pytest.mark.parametrize(("text", "facts"), ENDS)
def test_how_jobs_end(site: Site, text: str, facts: str) -> None:
    assert site.end(site.submit(text, "-t", "12s")) == facts
    if "told" in text:
        assert site.text("told") == "ALRM\n"


def test_jobs_are_cancelled(site: Site) -> None:
    """TERM comes first, then HUP; the script's traps do not change the state that Flux reports."""
    name = site.submit("trap 'echo TERM > told; exit 0' TERM; trap 'exit 4' HUP; touch on; sleep 99 & wait; wait")
    site.until((site.folder / "on").exists)
    assert site("cancel", name).code == 0
    assert site.end(name) == "CANCELED||cancel|"
    assert site.text("told") == "TERM\n"
    again = site("cancel", name)
    assert (again.code, "job is inactive" in again.err) == (1, True)
    held = site.submit("true", "--urgency=0")
    assert site.told(held) == "SCHED|||held|"
    assert site("cancel", held).code == 0
    assert site.end(held) == "CANCELED||cancel|"
    assert "unknown job" in site("cancel", "fAAAA").err


def test_dependencies(site: Site) -> None:
    first = site.submit(f"{UNTIL_GO}; exit 4")
    well = site.submit("true", f"--dependency=afterok:{first}")
    over = site.submit("true", f"--dependency=afterany:{first}")
    assert site.told(well) == f"DEPEND|||depends:after-success={first}|"
    assert site.told(over) == f"DEPEND|||depends:after-finish={first}|"
    (site.folder / "go").touch()
    assert site.end(first) == "FAILED|4||"
    assert site.end(well) == f"FAILED|1|dependency|dependency after-success={first} can never be satisfied"
    assert site.end(over) == "COMPLETED|0||"
    late = site("batch", "-N1", f"--dependency=afterok:{first}", "job.sh")
    assert (late.code, "failed or was canceled" in late.err) == (1, True)


def test_a_job_waits_for_its_begin_time(site: Site) -> None:
    later = int(time.time()) + 3
    first = site.submit("true", f"--dependency=begin-time:{later}")
    then = site.submit("true", f"--dependency=begin-time:{later + 3600}", f"--dependency=afterany:{first}")
    assert "depends:begin@" in site.told(then)
    assert site.end(first) == "COMPLETED|0||"
    assert time.time() >= later
    site.until(lambda: "after-finish" not in site.told(then))
    assert site.told(then).startswith("DEPEND|||depends:begin@")
    site("cancel", then)
    assert site.end(site.submit("true", "--dependency=begin-time:1")) == "COMPLETED|0||"


def test_dependencies_on_a_job_that_never_ran(site: Site) -> None:
    first = site.submit("true", "--urgency=0")
    well = site.submit("true", f"--dependency=afterok:{first}")
    over = site.submit("true", f"--dependency=afterany:{first}")
    site("cancel", first)
    assert site.end(well) == f"FAILED|1|dependency|dependency after-success={first} job never started"
    assert site.end(over) == "COMPLETED|0||"


def test_more_nodes_than_there_are(site: Site) -> None:
    name = site.submit("true", "-q", "batch", "-N9")
    assert site.end(name) == "FAILED|1|alloc|unsatisfiable request: need 9 exclusive node(s), only 2 eligible"


def test_a_limit_is_changed(site: Site) -> None:
    name = site.submit("sleep 12; flux job timeleft", "-t", "8s")
    site.until(lambda: "RUN" in site.told(name))
    assert site("update", name, "duration=+60s").code == 0
    assert site.end(name) == "COMPLETED|0||"
    assert 40 < int(site.text("out")) < 60


def test_jobs_that_are_not_known(site: Site) -> None:
    name = site.submit("true", "--urgency=0")
    some = site("jobs", "-no", "{status}", name, "fAAAA")
    assert (some.code, some.out, some.err) == (0, "SCHED\n", "JobID fAAAA unknown\n")
    none = site("jobs", "-no", "{status}", "fAAAA", "fBBBB")
    assert (none.code, none.out, none.err) == (1, "", "JobID fAAAA unknown\nJobID fBBBB unknown\n")
    assert site("jobs", "-no", "{status}", "zzz").code == 2
    assert "Unknown format field: bogus" in site("jobs", "-no", "{bogus}").err
    site("cancel", name)


RANKS = [
    ("-N2 -n4 -o exit-on-error bash -c 'hostname; exit $((FLUX_TASK_RANK * 0))'", 0, ["n1", "n1", "n2", "n2"]),
    ("-N1 -n2 bash -c 'exit 3'", 3, []),
    ("-N1 -n9 hostname", 1, []),
    ("-N2 -n1 hostname", 1, []),
]


@pytest.mark.job
@pytest.mark.skipif(not batch.may_rename(), reason="no host may be renamed")
@pytest.mark.parametrize(("arguments", "code", "hosts"), RANKS)
def test_ranks(site: Site, arguments: str, code: int, hosts: list[str]) -> None:
    name = site.submit(f"flux run {arguments}; echo code $?", "-N2")
    site.end(name)
    *lines, last = site.text("out").splitlines()
    assert (sorted(lines), last) == (hosts, f"code {code}")


@pytest.mark.skipif(brokers.PREFIX is not None, reason="of the stand-in alone")
def test_what_is_not_modelled_is_refused(site: Site) -> None:
    site.script("true")
    for arguments in (
        ("batch", "-N1", "--signal=USR1@60s", "job.sh"),
        ("alloc",),
        ("jobs", "--json"),
        ("run", "-N1", "-n1"),
    ):
        assert site(*arguments).code != 0
    (site.state / "down").touch()
    assert "Unable to connect to Flux" in site("jobs", "-no", "{status}").err
    assert os.path.exists(site.folder / "job.sh")
