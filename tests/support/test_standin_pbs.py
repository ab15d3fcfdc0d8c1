"""The stand-in for OpenPBS refuses what OpenPBS refuses and ends jobs as it does."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome
from tests.support.standins import batch, pbs

UNTIL_GO = 'while [ ! -e "$PBS_O_WORKDIR/go" ]; do sleep 0.02; done'


class Site:
    """The programs on PATH, in a folder of their own; one second of wall time is a tenth of a real one."""

    def __init__(self, folder: Path, **policy: Any) -> None:
        self.folder, self.state, self.home = folder / "work", folder / "state", folder / "home"
        self.folder.mkdir()
        self.home.mkdir()
        kept = {"second": 0.1, "grace": 0.3, "copy": 0.05, "home": self.home}
        pbs.install(folder / "bin", self.state, **kept | policy)
        self.path = f"{folder / 'bin'}:/usr/bin:/bin"

    def __call__(self, *command: object, **environment: str) -> Outcome:
        done = subprocess.run(
            [*map(str, command)], cwd=self.folder, env={"PATH": self.path, "SECRET": "of the submitter"} | environment,
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=240, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Outcome(done.returncode, done.stdout, done.stderr)

    def script(self, text: str, *directives: str) -> None:
        (self.folder / "job.sh").write_text("\n".join(["#!/bin/bash", *directives, text, ""]))

    def submit(self, text: str, *options: object, directives: tuple[str, ...] = ()) -> str:
        self.script(text, *directives)
        done = self("qsub", *options, "job.sh")
        assert done.code == 0, done.err
        return done.out.strip()

    def job(self, name: str) -> Any:
        return self("qstat", "-xf", "-F", "json", name).json["Jobs"][name]

    def until(self, condition: Callable[[], bool]) -> None:
        patience = time.monotonic() + 15
        while not condition():
            assert time.monotonic() < patience
            time.sleep(0.02)

    def end(self, name: str) -> Any:
        self.until(lambda: self.job(name)["job_state"] == "F")
        return self.job(name)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


REFUSED = [
    ("-q nope", "qsub: Unknown queue", 170),
    ("-q small -l walltime=0:10:01", "qsub: Job violates queue and/or server resource limits", 188),
    ("-l walltime=abc", "qsub: Illegal attribute or resource value Resource_List.walltime", 166),
    ("-l select=2:ncpus=x", "qsub: Illegal attribute or resource value Resource_List.select", 166),
    ("-l place=everywhere", "qsub: Illegal attribute or resource value Resource_List.place", 166),
    ("-l foo=1", "qsub: Unknown resource Resource_List.foo", 187),
    ("-l walltime", "qsub: illegal -l value", 2),
    ("-N bad!name", "qsub: illegal -N value", 2),
    ("-a abc", "qsub: illegal -a value", 2),
    ("-a 202613010000", "qsub: illegal -a value", 2),
    ("-a 20261127015619", "qsub: illegal -a value", 2),
    ("-a 202611270156.99", "qsub: illegal -a value", 2),
    ("-j both", "qsub: illegal -j value", 2),
    ("-k dd", "qsub: illegal -k value", 2),
    ("-W depend=sometime:1", "qsub: illegal -W value", 2),
    ("-W bogus=1", "qsub: Undefined attribute", 154),
    ("--bogus", "usage: qsub", 2),
    ("extra", "usage: qsub", 2),
]


@pytest.mark.parametrize(("arguments", "message", "code"), REFUSED)
def test_qsub_refuses_what_openpbs_refuses(site: Site, arguments: str, message: str, code: int) -> None:
    site.script("true")
    done = site("qsub", *arguments.split(), "job.sh")
    assert (done.code, done.out) == (code, "")
    assert message in done.err
    assert not (site.state / "jobs.json").exists()


@pytest.mark.parametrize(
    ("directive", "message", "code"),
    [
        ("#PBS -l bogus=3", "qsub: Unknown resource Resource_List.bogus", 187),
        ("#PBS --bogus", "qsub: directive error: --bogus", 1),
        ("#PBS -N don't", "qsub: unmatched", 1),
        ("\n# a comment\n  #PBS -q nope", "qsub: Unknown queue", 170),
    ],
)
def test_directives_are_checked(site: Site, directive: str, message: str, code: int) -> None:
    site.script("true", directive)
    done = site("qsub", "job.sh")
    assert (done.code, message in done.err) == (code, True), done


def test_files_that_are_no_scripts(site: Site) -> None:
    assert site("qsub", "gone.sh") == (1, "", "qsub: script file:: No such file or directory\n")
    (site.folder / "job.sh").write_bytes(b"#!/bin/bash\r\ntrue\r\n")
    assert site("qsub", "job.sh").err == "qsub: script contains cr, lf\n"


def test_options_are_merged_and_what_follows_a_command_is_no_directive(site: Site) -> None:
    directives = ("#PBS -q nope -N 'a_name'  # of mine", "#PBS -l walltime=30:00,select=1:ncpus=2", "#PBS -P proj")
    name = site.submit("#PBS -A late", "-q", "small", "-l", "walltime=60", directives=(*directives, "true"))
    job = site.job(name)
    assert (job["queue"], job["Job_Name"], job["project"]) == ("small", "a_name", "proj")
    assert job["Resource_List"]["walltime"] == "00:01:00"
    assert job["Resource_List"]["select"] == "1:ncpus=2"
    assert "Account_Name" not in job
    assert site("qselect", "-x", "-N", "a_name").out == f"{name}\n"


def test_a_job_starts_at_home_in_a_clean_environment(site: Site) -> None:
    flags = ("-l", "select=2:ncpus=4:mpiprocs=3,place=scatter,filesystems=home:eagle", "-v", "A=1,B='x,y'", "-A", "acc")
    name = site.submit("pwd; cat $PBS_NODEFILE; env; echo bad >&2", *flags)
    job = site.end(name)
    home, *lines = site.text("job.sh.o1").splitlines()
    assert (home, lines[:6]) == (str(site.home), ["n1"] * 3 + ["n2"] * 3)
    environment = dict(line.split("=", 1) for line in lines if "=" in line)
    assert "SECRET" not in environment
    assert environment["PBS_O_WORKDIR"] == str(site.folder)
    names = ("PBS_JOBID", "PBS_JOBNAME", "PBS_QUEUE", "PBS_ENVIRONMENT", "OMP_NUM_THREADS", "NCPUS", "A", "B")
    assert [environment[variable] for variable in names] == [name, "job.sh", "workq", "PBS_BATCH", "4", "4", "1", "x,y"]
    assert site.text("job.sh.e1") == "bad\n"
    assert (job["exec_host"], job["Account_Name"]) == ("n1/0*4+n2/0*4", "acc")
    assert job["Resource_List"] | {"nodect": 2, "ncpus": 8, "mpiprocs": 6} == job["Resource_List"]
    assert not Path(environment["TMPDIR"]).exists()
    site.end(site.submit("echo $SECRET", "-V", "-j", "oe", "-o", "out.txt"))
    assert site.text("out.txt") == "of the submitter\n"


def test_the_script_is_copied_at_submission(site: Site) -> None:
    first = site.submit(UNTIL_GO, "-l", "select=4:ncpus=8")
    second = site.submit("echo as submitted")
    site.script("echo as rewritten")
    site.until(lambda: site.job(first)["job_state"] == "R")
    assert site.job(second)["job_state"] == "Q"
    (site.folder / "go").touch()
    site.end(second)
    assert site.text("job.sh.o2") == "as submitted\n"


ENDS = [
    ("exit 0", 0, 92, "and finished"),
    ("exit 7", 7, 93, "and failed"),
    ("kill -9 $$", 265, 93, "and failed"),
    ("sleep 77", -29, 93, "and exceeded resource walltime"),
    ("trap 'echo asked; exit 42' TERM; sleep 77 & wait", -29, 93, "and exceeded resource walltime"),
    ("trap '' TERM; sleep 77 & echo $!; while :; do sleep 0.1; done", -29, 93, "and exceeded resource walltime"),
]


@pytest.mark.parametrize(("text", "code", "substate", "comment"), ENDS)
def test_how_jobs_end(site: Site, text: str, code: int, substate: int, comment: str) -> None:
    job = site.end(site.submit(text, "-l", "walltime=5"))
    assert (job["Exit_status"], job["substate"]) == (code, substate)
    assert job["comment"].startswith("Job run at ")
    assert job["comment"].endswith(comment)
    lines = site.text("job.sh.o1").splitlines()
    if code == -29:
        (message,) = [line for line in lines if "limit" in line]
        assert message == f"=>> PBS: job killed: walltime {message.split()[5]} exceeded limit 5"
        assert ("asked" in lines) == ("asked" in text)
    assert not any(Path("/proc", line).exists() for line in lines if line.isdigit())


def test_qdel_of_running_queued_finished_and_unknown_jobs(site: Site) -> None:
    running = site.submit("sleep 77", "-l", "select=4:ncpus=8")
    queued = site.submit("true")
    site.until(lambda: site.job(running)["job_state"] == "R")
    assert site("qdel", running, queued, "9999") == (153, "", "qdel: Unknown Job Id 9999.pbshost\n")
    job, other = site.end(running), site.end(queued)
    assert (job["Exit_status"], job["substate"]) == (0, 91)
    assert job["comment"].endswith("@pbshost")
    assert "and terminated by " in job["comment"]
    assert (other.get("Exit_status"), other["substate"]) == (None, 91)
    assert site("qdel", running) == (35, "", f"qdel: Job has finished {running}\n")
    assert site("qdel").code == 2
    assert site("qdel", "-x", running).code == 0
    assert site("qstat", "-xf", "-F", "json", running).code == 153


def test_dependencies(site: Site) -> None:
    good, bad = site.submit(UNTIL_GO), site.submit(f"{UNTIL_GO}; exit 1")
    after = {kind: site.submit("true", "-W", f"depend={kind}:{bad}") for kind in ("afterok", "afternotok", "afterany")}
    both = site.submit("true", "-W", f"depend=afterok:{good},afterany:{bad}")
    lost = site.submit("true", "-W", "depend=afterok:9999")
    held = site.job(both)
    assert (held["job_state"], held["substate"], held["Hold_Types"]) == ("H", 22, "s")
    (site.folder / "go").touch()
    for name in (both, after["afternotok"], after["afterany"]):
        assert site.end(name)["Exit_status"] == 0
    for name in (after["afterok"], lost, site.submit("true", "-W", f"depend=afterok:{bad}")):
        job = site.end(name)
        assert "Exit_status" not in job
        assert "comment" not in job
        assert job["substate"] == 92
    assert site.end(site.submit("true", "-W", f"depend=afterok:{good}"))["Exit_status"] == 0


def test_a_job_waits_for_its_begin_time(site: Site) -> None:
    begins = time.time() + 2
    text = time.strftime("%Y%m%d%H%M.%S", time.localtime(begins))
    waiting, past = (
        site.submit(f"date +%s > {site.folder}/started", "-a", text),
        site.submit("true", "-a", "202001010000"),
    )
    first = site.job(waiting)
    assert (first["job_state"], first["substate"], first["Hold_Types"]) == ("W", 30, "n")
    assert first["Execution_Time"] == time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(begins))
    after = site.submit("true", "-a", text, "-W", f"depend=afterany:{waiting}")
    assert site.job(after)["job_state"] == "H", "what it depends on comes first"
    assert site.end(past)["Exit_status"] == site.end(waiting)["Exit_status"] == site.end(after)["Exit_status"] == 0
    assert float(site.text("started")) >= int(begins)


def test_output_written_at_once_or_afterwards(site: Site) -> None:
    (site.folder / "logs").mkdir()
    direct = site.submit(f"echo begun; {UNTIL_GO}", "-k", "doe", "-o", "logs/")
    site.until(lambda: (site.folder / f"logs/{direct}.OU").exists() and bool(site.text(f"logs/{direct}.OU")))
    spooled = site.submit(f"echo begun; {UNTIL_GO}", "-o", "pbshost:logs/out", "-j", "oe")
    site.until(lambda: site.job(spooled)["job_state"] == "R")
    assert not (site.folder / "logs/out").exists()
    assert site.job(spooled)["Output_Path"] == f"pbshost:{site.folder}/logs/out"
    (site.folder / "go").touch()
    site.end(spooled)
    assert site.text("logs/out") == "begun\n"
    assert not (site.folder / f"job.sh.e{spooled.split('.')[0]}").exists()
    site.end(site.submit("echo lost", "-o", "nowhere/out"))
    assert not (site.folder / "nowhere").exists()
    held = site.submit("true", "-o", "nowhere/out", "-k", "doe")
    site.until(lambda: site.job(held)["job_state"] == "H")
    assert site.job(held)["comment"] == "job held, too many failed attempts to run"
    assert site.job(held)["Exit_status"] == -3


def test_pbs_tmrsh_starts_on_nodes_of_the_job_only(site: Site) -> None:
    hosts = "for host in n1 n2 n3; do pbs_tmrsh $host -n uname -n || echo $?; done"
    site.end(site.submit(hosts, "-l", "select=2:ncpus=1", "-l", "place=scatter", "-j", "oe"))
    on = ["n1", "n2"] if batch.may_rename() else [os.uname().nodename] * 2
    assert site.text("job.sh.o1").splitlines() == [*on, "pbs_tmrsh: host 'n3' is not of this job", "254"]
    assert site("pbs_tmrsh", "n1").err.startswith("usage: pbs_tmrsh host")


def test_pbs_tmrsh_starts_no_shell(site: Site) -> None:
    lines = (
        """pbs_tmrsh n1 '"/bin/echo"' hello; echo $?; pbs_tmrsh n1 /bin/sh -c '"/bin/echo" hello; exit 3'; echo $?"""
    )
    site.end(site.submit(lines, "-j", "oe"))
    assert site.text("job.sh.o1").splitlines() == [
        '"/bin/echo": No such file or directory', "254", "hello", "3"
    ]  # fmt: skip


def test_pbs_ends_tasks_and_not_what_has_left_their_session(site: Site) -> None:
    """Ranks of hydra have left their session."""
    task = "pbs_tmrsh n2 /bin/sh -c 'setsid sleep 7.7 & echo left $!; sleep 77 & echo task $!; wait' & sleep 1; wait"
    name = site.submit(task, "-l", "select=2:ncpus=1", "-l", "place=scatter", "-k", "doe", "-o", "out", "-j", "oe")
    out = site.home / f"job.sh.o{name.partition('.')[0]}"
    site.until(lambda: any(path.exists() and "task" in path.read_text() for path in (out, site.folder / "out")))
    assert site("qdel", name).code == 0
    site.end(name)
    text = next(path.read_text() for path in (out, site.folder / "out") if path.exists())
    pids = dict(line.split() for line in text.splitlines() if line.split()[0] in {"left", "task"})
    site.until(lambda: not Path("/proc", pids["task"]).exists())
    assert Path("/proc", pids["left"]).exists()
    os.kill(int(pids["left"]), 9)


def test_qstat_knows_what_has_finished_only_when_asked_for_history(site: Site) -> None:
    name = site.submit("true")
    site.end(name)
    gone = f"qstat: {name} Job has finished, use -x or -H to obtain historical job information\n"
    done = site("qstat", "-f", "-F", "json", "1")
    assert (done.code, done.err) == (35, gone)
    done = site("qstat", "-xf", "-F", "json", "7", name, "8.pbshost")
    assert (done.code, list(done.json["Jobs"])) == (153, [name])
    assert done.err == "qstat: Unknown Job Id 7.pbshost\nqstat: Unknown Job Id 8.pbshost\n"
    assert "Jobs" not in site("qstat", "-f", "-F", "json").json


def test_without_a_history_x_is_answered_with_a_complaint_and_nothing_else(site: Site) -> None:
    """OpenPBS does so unless job_history_enable is set; the exit code is 0."""
    name = site.submit(UNTIL_GO)
    (site.state / "forget").touch()
    done = site("qstat", "-xf", "-F", "json", name)
    assert (done.code, "Jobs" in done.json) == (0, False)
    assert done.err == f"qstat: PBS is not configured to maintain job history {name}\n"
    assert site("qselect", "-x") == (0, "", "qselect: PBS is not configured to maintain job history\n")
    assert list(site("qstat", "-f", "-F", "json", name).json["Jobs"]) == [name]
    (site.folder / "go").touch()
    site.until(lambda: site("qstat", "-f", "-F", "json", name).err == f"qstat: Unknown Job Id {name}\n")


@pytest.mark.parametrize(("node", "code"), [("n1", -4), ("n2", 0)])
def test_a_node_dies(site: Site, node: str, code: int) -> None:
    """PBS discards the job; if the first node lives, the job has no Exit_status of its own."""
    name = site.submit("sleep 77", "-l", "select=2:ncpus=1", "-l", "place=scatter")
    site.until(lambda: site.job(name)["job_state"] == "R")
    (site.state / "dead").write_text(node)
    job = site.end(name)
    assert (job["Exit_status"], job["substate"]) == (code, 93)
    assert not job["comment"].endswith("failed")


def test_the_wall_time_of_a_running_job_is_altered(site: Site) -> None:
    name = site.submit("sleep 77", "-l", "walltime=99:00")
    site.until(lambda: site.job(name)["job_state"] == "R")
    assert site("qalter", "-l", "walltime=0:00:05", name).code == 0
    shown = site("qstat", "-f", name).out
    assert "    Resource_List.walltime = 00:00:05\n" in shown
    assert "    stime = " in shown
    assert site.end(name)["Exit_status"] == -29
    assert site("qalter", "-l", "walltime=0:00:05", "77").code == 153


def test_queues_and_nodes(site: Site) -> None:
    queues = site("qstat", "-Qf", "-F", "json").json["Queue"]
    assert queues["small"]["resources_max"] == {"walltime": "00:10:00", "nodect": 2}
    assert {queues["workq"][key] for key in ("enabled", "started")} == {"True"}
    assert queues["workq"]["queue_type"] == "Execution"
    done = site("qstat", "-Qf", "-F", "json", "nope")
    assert (done.code, done.err) == (170, "qstat: Unknown queue nope\n")
    nodes = site("pbsnodes", "-a").out
    assert [line for line in nodes.splitlines() if line[:1] == "n"] == ["n1", "n2", "n3", "n4"]
    assert nodes.count("     resources_available.ncpus = 8\n") == 4
    assert site("pbsnodes").code == 2
    name = site.submit("true", "-q", "small", "-h")
    assert site.job(name)["job_state"] == "H"
    assert site("qselect").out == f"{name}\n"
    assert site("qselect", "-u", "nobody").out == ""


def test_placement(site: Site) -> None:
    for resources, host in (
        ("select=2:ncpus=2", "n1/0*2+n1/0*2"),
        ("select=2:ncpus=2,place=scatter", "n1/0*2+n2/0*2"),
        ("select=1:ncpus=8+2:ncpus=1", "n1/0*8+n2/0+n2/0"),
        ("ncpus=3", "n1/0*3"),
    ):
        assert site.end(site.submit("true", "-l", resources))["exec_host"] == host


def test_what_a_site_requires(tmp_path: Path) -> None:
    site = Site(tmp_path, require=["account", "filesystems", "keep"], filesystems={"home": True, "eagle": False})
    site.script("true")
    assert site("qsub", "job.sh").err == "qsub: Account_Name is required to be set.\n"
    done = site("qsub", "-A", "x", "job.sh")
    assert done.err == "qsub: Resource: filesystems is required to be set.\n"
    assert done.code != 0
    assert site("qsub", "-A", "x", "-l", "filesystems=home", "-k", "oe", "job.sh").code != 0
    assert site.job(site.submit("true", "-A", "x", "-l", "filesystems=home"))["Keep_Files"] == "doe"
    name = site.submit("true", "-A", "x", "-l", "filesystems=home:eagle")
    site.until(lambda: "comment" in site.job(name))
    assert site.job(name)["comment"] == (
        "Can Never Run: Insufficient amount of server resource: eagle_fs (True != False)"
    )
    with pytest.raises(TypeError, match="reqire"):
        pbs.install(tmp_path, tmp_path, reqire=[])
