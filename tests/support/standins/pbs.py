"""A stand-in for OpenPBS 23.06: qsub, qstat, qselect, qalter, qdel, pbsnodes, pbs_tmrsh over a state directory.

Texts, exit codes, states and variables are those of OpenPBS 23.06.06; the rest is read in its sources
(github.com/openpbs/openpbs: src/cmds, src/lib/Libcmds, src/server, src/resmom). Refusals of a site are ALCF's. Options
and forms of output that are not used here are refused, whether PBS has them or not.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.support.standins import batch
from tests.support.standins.batch import Book, Content, Job, Jobs, Refused, user

if TYPE_CHECKING:
    from pathlib import Path

SERVER, VERSION = "pbshost", "23.06.06"

# Seconds of wall time and nodes that a job may ask for; `enabled` and `started` as qstat -Q shows them.
QUEUES: dict[str, dict[str, Any]] = {"workq": {}, "small": {"walltime": 600, "nodect": 2}}

# second: real seconds that a second of wall time takes. grace: seconds from TERM to KILL. wait: seconds a job is
# queued at least. copy: seconds that spooled output takes to arrive. nodes, cpus: there are, and each has. first: the
# first job's number. home: HOME of jobs, None for the user's. require: any of account, filesystems, keep. filesystems:
# name -> whether it is up.
POLICY: dict[str, Any] = {
    "second": 1.0, "grace": 10.0, "wait": 0.0, "copy": 0.2, "nodes": 4, "cpus": 8, "first": 1, "home": None,
    "queues": QUEUES, "require": [], "filesystems": {},
}  # fmt: skip

_COUNTS = {"ncpus", "ngpus", "mpiprocs", "ompthreads", "nodect"}
# PBS's own, and two that sites add.
_RESOURCES = _COUNTS | {
    *("arch", "cput", "file", "host", "mem", "nice", "pcput", "place", "pmem", "pvmem", "select", "software", "vmem"),
    *("vnode", "walltime", "filesystems", "system"),
}
_PLACE = r"(free|pack|scatter|vscatter|excl|exclhost|shared|group=\w+)(:[\w=]+)*"
# The values of options. Those of the last line have no effect here. A begin time is a full date (cvtdate.c); a shorter
# one is not modelled.
_VALID = {
    "a": r"\d{4}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])([01]\d|2[0-3])[0-5]\d(\.[0-5]\d)?",
    "A": r"[^\n]*", "e": ".+", "j": "oe|eo|n", "k": "n|(?!.*(.).*\\1)[oed]{1,3}", "N": r"[A-Za-z0-9_+.-]{1,230}",
    "o": ".+", "P": ".+", "q": ".+", "r": "y|n", "v": ".+",
    "m": "n|j?[abe]+j?", "M": ".+", "p": r"[+-]?\d{1,4}", "R": "(?!.*(.).*\\1)[oe]{1,2}", "u": ".+",
}  # fmt: skip
_ATTRIBUTES = {"group_list", "release_nodes_on_stageout", "run_count", "sandbox", "tolerate_node_failures", "umask"}
_KNOWN = {
    "qsub": "hVzl:W:" + "".join(f"{flag}:" for flag in _VALID), "qstat": "fxQF:", "qselect": "N:u:x", "qdel": "x",
    "qalter": "l:",
}  # fmt: skip
_USAGE = {
    "qsub": "[-a|-A|-e|-j|-k|-l|-m|-M|-N|-o|-p|-P|-q|-r|-R|-u|-v|-W value] [-hVz] script",
    "qstat": "[-x] [-Q] -f [-F json] [job_identifier...|queue...]", "qselect": "[-N jobname] [-u user] [-x]",
    "qalter": "-l walltime=TIME job_identifier", "qdel": "[-x] job_identifier...", "pbsnodes": "-a",
}  # fmt: skip
# Substates (src/include/job.h)
_QUEUED, _HELD, _DEPENDS, _WAITING, _RUNNING, _EXITING = 10, 20, 22, 30, 42, 51
_TERMINATED, _FINISHED, _FAILED = 91, 92, 93
_OVER_WALLTIME, _RETRY, _HOOK = -29, -3, 15136 % 256  # PBSE_HOOKERROR (pbs_error.h)
_RESTARTED = -4  # JOB_EXEC_INITABT (job.h): the first node's MOM came back without the job
_NO_HISTORY = "PBS is not configured to maintain job history"


def install(folder: Path, state: Path, **policy: Any) -> None:
    """Write the programs into `folder`; on PATH they are the batch system. POLICY lists the settings."""
    batch.install_programs(folder, state, __name__, PROGRAMS, batch.known(POLICY, policy))


def main(program: str, state: str) -> int:
    """Run one command. A file `down` in the state directory makes the server unreachable, `slow` holds seconds,
    `forget` switches off the history of jobs, `dead` names a node that dies, with `hook` a hook of the nodes rejects
    all jobs.
    """
    if sys.argv[1:] == ["--version"]:
        print(f"pbs_version = {VERSION}")
        return 0
    try:
        batch.slowly(state)
        if os.path.exists(os.path.join(state, "down")):
            text = f"Connection refused\n{program}: cannot connect to server {SERVER} (errno=111)"
            raise Refused(text, 255 if program == "qstat" else 111)
        return PROGRAMS[program](Book(state), sys.argv[1:])
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return refusal.code


def _options(program: str, arguments: list[str], below: Job | None = None) -> tuple[Job, list[str]]:
    """Parse options like getopt(3). The last value of an option counts, and overrides those `below`; the values of -l
    and of -W are joined.
    """
    import getopt

    options: Job = dict(below or {})
    try:
        pairs, rest = getopt.gnu_getopt(arguments, _KNOWN[program])
    except getopt.GetoptError as fault:
        raise _usage(program, f"{program}: invalid option -- '{fault.opt}'\n") from None
    for flag, value in pairs:
        joins = flag in {"-l", "-W"} and flag[1:] in options
        options[flag[1:]] = f"{options[flag[1:]]},{value}" if joins else value.strip()
    return options, rest


def _usage(program: str, fault: str = "") -> Refused:
    return Refused(f"{fault}usage: {program} {_USAGE[program]}, the rest is not modelled by this stand-in", 2)


def qsub(book: Book, arguments: list[str]) -> int:
    _, names = _options("qsub", arguments)
    if len(names) != 1:
        raise _usage("qsub")
    script, options = _read(names[0]), {"N": os.path.basename(names[0])}
    for directive in _directives(script):
        options = _directive(directive, options)
    options, _ = _options("qsub", arguments, options)
    name = _enqueue(book, _make(book, options) | {"arguments": " ".join(arguments)}, script)
    if "z" not in options:
        print(f"{name}.{SERVER}")
    batch.detach(book, lambda: _supervise(book, name))
    return 0


def _equals(options: Job, flag: str) -> dict[str, str]:
    """Parse name=value,name=value. A comma separates them only where name= follows."""
    values = {}
    for part in re.split(r",(?=\s*\w+=)", options[flag]) if flag in options else []:
        name, _, value = part.strip().partition("=")
        if not name or not value:
            raise _illegal(flag)
        values[name] = value
    return values


def _illegal(flag: str) -> Refused:
    return _usage("qsub", f"qsub: illegal -{flag} value\n")


def _read(name: str) -> str:
    try:
        with open(name, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read()
    except OSError as fault:
        raise Refused(f"qsub: script file:: {fault.strerror}") from None
    if "\r\n" in text:
        raise Refused("qsub: script contains cr, lf")
    return text


def _directives(script: str) -> list[str]:
    """Return the directives up to the first line that is neither blank nor a comment (check_job_script.c)."""
    directives = []
    for line in map(str.lstrip, script.splitlines()):
        if line.startswith("#PBS"):
            directives.append(line[len("#PBS") :])
        elif line and not line.startswith(("#", ":")):
            break
    return directives


def _directive(text: str, below: Job) -> Job:
    """Parse the options of a directive (qsub.c, make_argv): quotes of both kinds and backslashes; `#` is an ordinary
    character.
    """
    import shlex

    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        arguments = list(lexer)
        return _options("qsub", arguments, below)[0]
    except ValueError:
        raise Refused("qsub: unmatched ") from None
    except Refused as refusal:
        raise Refused(f"{str(refusal).splitlines()[0]}\nqsub: directive error: {' '.join(arguments)} ") from None


def _make(book: Book, options: Job) -> Job:
    for flag, pattern in _VALID.items():
        if flag in options and not re.fullmatch(pattern, options[flag]):
            raise _illegal(flag)
    resources, chunks = _resources(_equals(options, "l"))
    queue = options.get("q", "").partition("@")[0] or "workq"
    _admit(book, queue, options, resources)
    attributes = _equals(options, "W")
    depend = _depend(attributes.pop("depend", ""))
    if unknown := attributes.keys() - _ATTRIBUTES:
        raise Refused(f"qsub: Undefined attribute  {', '.join(sorted(unknown))}", 154)
    return {
        "Job_Name": options["N"], "owner": user(), "queue": queue, "resources": resources, "chunks": chunks,
        "depend": depend, "options": {flag: options.get(flag) for flag in "APeojkr"}, "workdir": os.getcwd(),
        "variables": _variables(options, queue), "held": "h" in options,
        "home": str(book.policy["home"] or os.path.expanduser("~")), "begins": _begins(options.get("a")),
    }  # fmt: skip


def _begins(text: str | None) -> float:
    """Return a begin time, which is in the time zone of the submitter, in seconds since 1970; 0: none."""
    if text is None:
        return 0.0
    fields = [int(text[:4]), *(int(text[place : place + 2]) for place in (4, 6, 8, 10)), int(text[13:] or 0)]
    return time.mktime((*fields, 0, 0, -1))  # type: ignore[arg-type]


def _due(job: Job) -> Job:
    """Return the state of a job that waits for nothing but its begin time."""
    state = {"state": "W", "substate": _WAITING} if time.time() < job["begins"] else {"state": "Q", "substate": _QUEUED}
    return state if (job.get("state"), job.get("substate")) != (state["state"], state["substate"]) else {}


def _resources(asked: dict[str, str]) -> tuple[dict[str, Any], list[dict[str, int]]]:
    """Return Resource_List as the server shows it, and the chunks of the selection, one by one."""
    for name, value in asked.items():
        _check(name, value, name)
    resources: dict[str, Any] = {"select": "1:ncpus={}".format(asked.get("ncpus", "1")), "place": "free"} | asked
    chunks = []
    for part in resources["select"].split("+"):
        first, *pairs = part.split(":") if part[:1].isdigit() else ["1", *part.split(":")]
        chunk = {"ncpus": 1}
        for name, _, value in (pair.partition("=") for pair in pairs):
            _check(name, value, "select")
            chunk |= {name: int(value)} if name in _COUNTS else {}
        _check("ncpus", first, "select")
        chunks += [dict(chunk) for _ in range(int(first))]
    resources |= {"ncpus": sum(chunk["ncpus"] for chunk in chunks), "nodect": len(chunks)}
    resources |= {"mpiprocs": most} if (most := sum(chunk.get("mpiprocs", 0) for chunk in chunks)) else {}
    resources |= {"walltime": _hms(_seconds(resources["walltime"]))} if "walltime" in resources else {}
    return resources, chunks


def _check(name: str, value: str, where: str) -> None:
    if name not in _RESOURCES:
        raise Refused(f"qsub: Unknown resource Resource_List.{where}", 187)
    forms = dict.fromkeys(_COUNTS, r"\d+") | {"walltime": r"\d+(:\d+){0,2}(\.\d+)?", "place": _PLACE}
    if not re.fullmatch(forms.get(name, ".+"), value):
        raise Refused(f"qsub: Illegal attribute or resource value Resource_List.{where}", 166)


def _seconds(text: str) -> int:
    """Parse [[HH:]MM:]SS[.mmm]."""
    parts = map(int, reversed(text.partition(".")[0].split(":")))
    return sum(part * 60**place for place, part in enumerate(parts))


def _hms(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return "{:02d}:{:02d}:{:02d}".format(*divmod(minutes, 60), rest)


def _admit(book: Book, queue: str, options: Job, resources: dict[str, Any]) -> None:
    """Apply the rules of the site's hook, then the limits of the queue."""
    required, limits = book.policy["require"], book.policy["queues"].get(queue)
    if "account" in required and not options.get("A"):
        raise Refused("qsub: Account_Name is required to be set.", _HOOK)
    if "filesystems" in required and "filesystems" not in resources:
        raise Refused("qsub: Resource: filesystems is required to be set.", _HOOK)
    if "keep" in required and set(options.setdefault("k", "doe")) != set("doe"):
        raise Refused("qsub: -k is required to be doe.", _HOOK)
    if limits is None:
        raise Refused("qsub: Unknown queue", 170)
    if "walltime" in limits:
        resources.setdefault("walltime", _hms(limits["walltime"]))
    over = "walltime" in limits and _seconds(resources["walltime"]) > limits["walltime"]
    if over or resources["nodect"] > limits.get("nodect", resources["nodect"]):
        raise Refused("qsub: Job violates queue and/or server resource limits", 188)
    if limits.get("enabled", "True") != "True":
        raise Refused("qsub: Queue is not enabled", 173)


def _depend(text: str) -> list[list[Any]]:
    """Parse type:id:id,type:id; other types are not modelled."""
    dependencies: list[list[Any]] = []
    for part in text.split(",") if text else []:
        if not re.fullmatch(r"(afterok|afternotok|afterany)(:\d+(\.[\w.-]+)?)+", part):
            raise _illegal("W")
        kind, *names = part.split(":")
        dependencies.append([kind, [name.partition(".")[0] for name in names]])
    return dependencies


def _variables(options: Job, queue: str) -> dict[str, str]:
    given = {"SHELL": "/bin/bash", "HOME": "", "LOGNAME": user(), "LANG": "C", "PATH": "/usr/bin:/bin", "MAIL": ""}
    variables = {f"PBS_O_{name}": os.environ.get(name, value) for name, value in given.items()}
    variables |= {"PBS_O_SYSTEM": "Linux", "PBS_O_WORKDIR": os.getcwd(), "PBS_O_QUEUE": queue, "PBS_O_HOST": SERVER}
    if "V" in options:
        variables = dict(os.environ) | variables
    for part in re.split(r",(?=\w+(?:=|,|$))", options["v"]) if "v" in options else []:
        name, equals, value = part.partition("=")
        if not equals and name not in os.environ:
            raise Refused("qsub: cannot send environment with the job")
        variables[name] = value.strip("'\"") if equals else os.environ[name]
    return variables


def _enqueue(book: Book, job: Job, script: str) -> str:
    """Add the job. The server keeps a copy of its own of the script."""
    with book.change() as content:
        name = str(content["next"])
        content["next"] += 1
        substate = _HELD if job["held"] else _DEPENDS
        job |= {"state": "H", "substate": substate} if job["held"] or job["depend"] else _due(job)
        job |= {"submittime": time.time(), "exec": None, "comment": None}
        path = _folder(book, "jobs", f"{name}.{SERVER}.SC")
        with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(script)
        os.chmod(path, 0o700)
        content["jobs"][name] = job | {"key": name, "script": path}
    return name


def _folder(book: Book, folder: str, name: str) -> str:
    """Return a path in a folder of the state directory."""
    os.makedirs(os.path.join(book.state, folder), exist_ok=True)
    return os.path.join(book.state, folder, name)


def _supervise(book: Book, name: str) -> None:
    job = batch.wait_for_turn(book, name, _next_state, lambda j: j["held"] or j["comment"] or j["state"] in {"R", "F"})
    if job is not None and job["state"] == "R":
        _run(book, job)


def _next_state(book: Book, content: Content, name: str) -> Job | None:
    """Return the change to a job that has not started, if any."""
    job: Job = content["jobs"][name]
    if job["state"] in {"R", "E", "F"} or job["held"]:
        return None
    if job["substate"] == _DEPENDS:
        return _after_dependencies(content["jobs"], job)
    if job["state"] == "W" or time.time() < job["submittime"] + book.policy["wait"]:
        return _due(job) or None
    if never := _never(book, job):
        return {"comment": never}
    hosts = _allocate(book, content["jobs"], job)
    if hosts is None:
        return None
    vnodes = "+".join(f"({host}:ncpus={chunk['ncpus']})" for host, chunk in zip(hosts, job["chunks"], strict=True))
    comment = f"Job run at {time.strftime('%a %b %d at %H:%M')} on {vnodes}"
    started = {"state": "R", "substate": _RUNNING, "stime": time.time()}
    return started | {"exec": hosts, "vnodes": vnodes, "comment": comment}


def _after_dependencies(jobs: Jobs, job: Job) -> Job | None:
    """Apply the dependencies (req_register.c). One that can no longer be met deletes the job, as does one on an unknown
    job. For afterok, a deleted job counts as failed whatever its Exit_status says.
    """
    parents = [(kind, jobs.get(key)) for kind, keys in job["depend"] for key in keys]
    for kind, parent in parents:
        good = parent is not None and parent.get("exit") == 0 and parent["substate"] != _TERMINATED
        met = {"afterany": True, "afterok": good, "afternotok": not good}[kind]
        if parent is None or (parent["state"] == "F" and not met):
            return {"state": "F", "substate": _FINISHED}
    over = all(parent and parent["state"] == "F" for _, parent in parents)
    return _due(job) if over else None


def _never(book: Book, job: Job) -> str | None:
    for name in job["resources"].get("filesystems", "").split(":"):
        if not book.policy["filesystems"].get(name, True):
            return f"Can Never Run: Insufficient amount of server resource: {name}_fs (True != False)"
    return None if _allocate(book, {}, job) else "Can Never Run: Not enough total nodes available"


def _allocate(book: Book, jobs: Jobs, job: Job) -> list[str] | None:
    """Return a host for each chunk, given the running jobs, place=scatter and excl."""
    cpus, place = book.policy["cpus"], job["resources"]["place"]
    free = {f"n{number}": cpus for number in range(1, book.policy["nodes"] + 1)}
    for other in jobs.values():
        if other["state"] in {"R", "E"}:
            for host, chunk in zip(other["exec"], other["chunks"], strict=True):
                free[host] -= cpus if "excl" in other["resources"]["place"] else chunk["ncpus"]
    whole = {host for host in free if free[host] == cpus}
    hosts: list[str] = []
    for chunk in job["chunks"]:
        usable = whole if "excl" in place else free.keys()
        fitting = [host for host in free if host in usable and free[host] >= chunk["ncpus"]]
        fitting = [host for host in fitting if "scatter" not in place or host not in hosts]
        if not fitting:
            return None
        free[fitting[0]] -= chunk["ncpus"]
        hosts.append(fitting[0])
    return hosts


def _set(book: Book, job: Job, **change: Any) -> None:
    with book.change() as content:
        content["jobs"][job["key"]] |= change


def _run(book: Book, job: Job) -> None:
    """Run the script by a login shell in the home directory. A job that qdel ended has status 0, one over its time -29
    (svr_jobfunc.c, update_job_finish_comment). Spooled output that cannot be copied to its place stays undelivered.
    """
    import shutil
    import subprocess

    streams = _streams(book, job)
    if os.path.exists(os.path.join(book.state, "hook")):  # an execjob_begin hook of the node that rejects each start
        comment = "job held, too many failed attempts to run"
        _set(book, job, state="H", substate=_HELD, exec=None, comment=comment)
        return
    if any(not os.path.isdir(os.path.dirname(written)) for _, written in streams.values()):
        comment = "job held, too many failed attempts to run"
        _set(book, job, state="H", substate=_HELD, exec=None, exit=_RETRY, comment=comment)
        return
    output, error = ((streams.get(letter) or next(iter(streams.values())))[1] for letter in "oe")
    environment = _environment(book, job)
    path = job["variables"].get("PATH") or f"/usr/local/bin:/usr/bin:/bin:{book.policy['folder']}"
    shell = ["-bash", "-c", f"export PATH='{path}'; exec '{job['script']}'"]
    with open(output, "ab") as out, open(error, "ab") as err:
        child = subprocess.Popen(
            shell, executable="/bin/bash", env=environment, cwd=environment["HOME"], stdin=subprocess.DEVNULL,
            stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
        reason = batch.watch(
            child,
            lambda: _verdict(book, job, out.fileno()),
            book.policy["grace"],
            sessions=lambda: _tasks(book, job["key"]),
        )
    status = child.returncode if child.returncode >= 0 else 256 - child.returncode
    substate, ending = (_FINISHED, "finished") if status == 0 else (_FAILED, "failed")
    if reason == "walltime":
        status, substate, ending = _OVER_WALLTIME, _FAILED, "exceeded resource walltime"
    elif reason == "user":
        status, substate, ending = 0, _TERMINATED, f"terminated by {user()}@{SERVER}"
    elif reason == "node":
        status, substate, ending = _RESTARTED if _dead(book) == job["exec"][0] else 0, _FAILED, ""
    _set(book, job, state="E", substate=_EXITING, exit=status)
    spooled = [paths for paths in streams.values() if paths[0] != paths[1]]
    time.sleep(book.policy["copy"] * bool(spooled))
    for final, written in spooled:
        with suppress(OSError):
            shutil.copyfile(written, final)
    shutil.rmtree(_folder(book, "tmp", job["key"]), ignore_errors=True)
    _set(book, job, state="F", substate=substate, comment=job["comment"] + (f" and {ending}" if ending else ""))


def _tasks(book: Book, key: str) -> set[int]:
    """Return the sessions that pbs_tmrsh started."""
    return set(book.read()["jobs"].get(key, {}).get("tasks", []))


def _dead(book: Book) -> str | None:
    with suppress(FileNotFoundError), open(os.path.join(book.state, "dead"), encoding="utf-8") as file:
        return file.read().strip()
    return None


def _used(book: Book, job: Job) -> float:
    """Return the seconds of wall time."""
    used: float = (time.time() - job["stime"]) / book.policy["second"]
    return used


def _verdict(book: Book, job: Job, output: int) -> str | None:
    used, now = _used(book, job), book.read()["jobs"].get(job["key"], job | {"deleted": True})
    limit = _seconds(now["resources"].get("walltime", "99999:00:00"))
    if _dead(book) in job["exec"]:
        return "node"
    if used > limit:
        os.write(output, f"=>> PBS: job killed: walltime {int(used)} exceeded limit {limit}\n".encode())
        return "walltime"
    return "user" if now.get("deleted") else None


def _streams(book: Book, job: Job) -> dict[str, tuple[str, str]]:
    """Return the final path of output (o) and error (e), and the path that they are written to: with -k the same. A
    joined stream is left out.
    """
    keep, join = job["options"]["k"] or "n", job["options"]["j"] or "n"
    streams = {}
    for letter in "oe" if join == "n" else join[0]:
        path = _final(job, letter)
        if letter in keep and "d" not in keep:
            path = os.path.join(job["home"], f"{job['Job_Name']}.{letter}{job['key']}")
        streams[letter] = path, path if letter in keep else _folder(book, "spool", f"{job['key']}.{letter}")
    return streams


def _final(job: Job, letter: str) -> str:
    given = job["options"][letter] or f"{job['Job_Name']}.{letter}{job['key']}"
    path: str = os.path.join(job["workdir"], re.sub(r"^[\w.-]+:", "", given))
    is_folder = given.endswith("/") or os.path.isdir(path)
    return os.path.join(path, f"{job['key']}.{SERVER}.{'OU' if letter == 'o' else 'ER'}") if is_folder else path


def _environment(book: Book, job: Job) -> dict[str, str]:
    nodefile, scratch = _folder(book, "aux", f"{job['key']}.{SERVER}"), _folder(book, "tmp", job["key"])
    os.makedirs(scratch, exist_ok=True)
    with open(nodefile, "w", encoding="utf-8") as file:
        chunks = zip(job["exec"], job["chunks"], strict=True)
        file.writelines(f"{host}\n" * chunk.get("mpiprocs", 1) for host, chunk in chunks)
    first, home, owner = job["chunks"][0], job["home"], job["owner"]
    account = {"PBS_ACCOUNT": job["options"]["A"]} if job["options"]["A"] else {}
    variables: dict[str, str] = job["variables"] | account | {
        "HOME": home, "LOGNAME": owner, "USER": owner, "SHELL": "/bin/bash", "PBS_JOBNAME": job["Job_Name"],
        "PBS_JOBID": f"{job['key']}.{SERVER}", "PBS_QUEUE": job["queue"], "PBS_NODEFILE": nodefile,
        "PBS_JOBCOOKIE": f"{job['submittime']:032.0f}", "PBS_NODENUM": "0", "PBS_TASKNUM": "1", "PBS_MOMPORT": "15003",
        "PBS_JOBDIR": home, "PBS_ENVIRONMENT": "PBS_BATCH", "ENVIRONMENT": "BATCH", "TMPDIR": scratch,
        "NCPUS": str(first["ncpus"]), "OMP_NUM_THREADS": str(first.get("ompthreads", first["ncpus"])),
    }  # fmt: skip
    return variables


def qdel(book: Book, arguments: list[str]) -> int:
    options, names = _options("qdel", arguments)
    if not names:
        raise _usage("qdel")
    code = 0
    with book.change() as content:
        for name in names:
            key = name.partition(".")[0]
            job, text = _visible(book, content["jobs"]).get(key), ""
            if job is None:
                code, text = 153, "Unknown Job Id"
            elif job["state"] == "F" and "x" not in options:
                code, text = 35, "Job has finished"
            elif job["state"] == "F":
                del content["jobs"][key]
            else:
                job |= {"deleted": True} if job["exec"] else {"state": "F", "substate": _TERMINATED}
            if text:
                print(f"qdel: {text} {key}.{SERVER}", file=sys.stderr)
    return code


def _has_no_history(book: Book) -> bool:
    return os.path.exists(os.path.join(book.state, "forget"))


def _visible(book: Book, jobs: Jobs) -> Jobs:
    return {key: job for key, job in jobs.items() if not _has_no_history(book) or job["state"] != "F"}


def qalter(book: Book, arguments: list[str]) -> int:
    """qalter(1B): change the wall time of a job, also of a running one."""
    options, names = _options("qalter", arguments)
    asked = _equals(options, "l")
    if len(names) != 1 or asked.keys() != {"walltime"}:
        raise _usage("qalter")
    with book.change() as content:
        job = _visible(book, content["jobs"]).get(key := names[0].partition(".")[0])
        if job is None:
            raise Refused(f"qalter: Unknown Job Id {key}.{SERVER}", 153)
        job["resources"]["walltime"] = _hms(_seconds(asked["walltime"]))
    return 0


def qselect(book: Book, arguments: list[str]) -> int:
    given, rest = _options("qselect", arguments)
    if rest:
        raise _usage("qselect")
    if "x" in given and _has_no_history(book):
        print(f"qselect: {_NO_HISTORY}", file=sys.stderr)
        return 0
    for key, job in _visible(book, book.read()["jobs"]).items():
        asked = given.get("N", job["Job_Name"]) == job["Job_Name"] and given.get("u", job["owner"]) == job["owner"]
        if asked and (job["state"] != "F" or "x" in given):
            print(f"{key}.{SERVER}")
    return 0


def qstat(book: Book, arguments: list[str]) -> int:
    """Print jobs in full as text or JSON, or queues as JSON. A job that is not found gives an error message, the others
    are shown. Without a history -x gives an error message and no job, and the exit code is 0.
    """
    flags, names = _options("qstat", arguments)
    if "f" not in flags or flags.get("F", "json") != "json" or ("Q" in flags and "F" not in flags):
        raise _usage("qstat")
    kind, answers, faults = (
        ("Queue", *_queues(book, names)) if "Q" in flags else ("Jobs", *_jobs(book, names, "x" in flags))
    )
    root: Job = {"timestamp": int(time.time()), "pbs_version": VERSION, "pbs_server": SERVER}
    if "F" in flags:
        print(_json(root | ({kind: answers} if answers else {})))
    else:
        print("".join(map(_text, answers.items())), end="")
    for text, _ in faults:
        print(f"qstat: {text}", file=sys.stderr)
    return faults[-1][1] if faults else 0


def _json(root: Job) -> str:
    """Return what qstat prints. As in pbs_json.c of 23.06, a variable that strtod(3) reads as a number has no quotes,
    and a backslash is not escaped.
    """
    number = r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan|0x[0-9a-f]+)"
    for job in root.get("Jobs", {}).values():
        for name, value in job["Variable_List"].items():
            plain = value if re.fullmatch(number, value, re.IGNORECASE) else '"' + value.replace('"', '\\"') + '"'
            job["Variable_List"][name] = f"<{plain}>" if "\n" not in value else value
    printed = json.dumps(root, indent=4, separators=(",", ":"))
    return re.sub(r'"<((?:[^"\\]|\\.)*)>"', lambda match: json.loads(f'"{match[1]}"'), printed)


def _text(pair: tuple[str, Job]) -> str:
    """Return a job as qstat -f prints it, without the folding of long lines."""
    name, shown = pair
    lines = [f"Job Id: {name}"]
    for key, value in shown.items():
        if key == "Variable_List":
            parts: Job = {key: ",".join(f"{one}={text}" for one, text in value.items())}
        else:
            parts = {f"{key}.{part}": one for part, one in value.items()} if key == "Resource_List" else {key: value}
        lines += [f"    {one} = {text}" for one, text in parts.items()]
    return "\n".join([*lines, "", ""])


def _jobs(book: Book, names: list[str], history: bool) -> tuple[dict[str, Job], list[tuple[str, int]]]:
    if history and _has_no_history(book):
        return {}, [(" ".join([_NO_HISTORY, name]), 0) for name in names or [""]]
    jobs, shown, faults = _visible(book, book.read()["jobs"]), {}, []
    for name in names or jobs:
        key = name.partition(".")[0]
        if key not in jobs:
            faults.append((f"Unknown Job Id {key}.{SERVER}", 153))
        elif jobs[key]["state"] != "F" or history:
            shown[f"{key}.{SERVER}"] = _attributes(book, jobs[key])
        elif names:
            text = f"{key}.{SERVER} Job has finished, use -x or -H to obtain historical job information"
            faults.append((text, 35))
    return shown, faults


def _ctime(moment: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(moment))


def _attributes(book: Book, job: Job) -> Job:
    """Return the attributes that qstat -f shows of a job, as far as they are known here, in its order. Its start time
    is computed from the wall time that it has used, however long that took.
    """
    start = time.time() - _used(book, job) if "stime" in job else None
    options, pairs = job["options"], zip(job["exec"] or [], job["chunks"], strict=False)
    shown = {
        "Job_Name": job["Job_Name"], "Job_Owner": f"{job['owner']}@{SERVER}", "job_state": job["state"],
        "queue": job["queue"], "server": SERVER, "Account_Name": options["A"],
        "depend": ",".join(":".join([kind, *(f"{key}.{SERVER}@{SERVER}" for key in of)]) for kind, of in job["depend"]),
        "ctime": _ctime(job["submittime"]),
        "Error_Path": f"{SERVER}:{_final(job, 'e')}",
        "exec_host": "+".join(f"{host}/0" + f"*{chunk['ncpus']}" * (chunk["ncpus"] > 1) for host, chunk in pairs),
        "exec_vnode": job.get("vnodes"), "Execution_Time": _ctime(job["begins"]) if job["begins"] else None,
        "Hold_Types": "u" if job["held"] else "s" if job["state"] == "H" else "n", "Join_Path": options["j"] or "n",
        "Keep_Files": options["k"] or "n", "Output_Path": f"{SERVER}:{_final(job, 'o')}",
        "Rerunable": "False" if options["r"] == "n" else "True", "stime": start and _ctime(start),
        "substate": job["substate"],
        # As qstat.c: what reads as a number is one in JSON.
        "Resource_List": {name: int(one) if str(one).isdigit() else one for name, one in job["resources"].items()},
        "Variable_List": job["variables"], "comment": job["comment"], "Exit_status": job.get("exit"),
        "Submit_arguments": job["arguments"], "project": options["P"] or "_pbs_project_default",
    }  # fmt: skip
    return {name: value for name, value in shown.items() if value not in (None, "")}


def _queues(book: Book, names: list[str]) -> tuple[dict[str, Job], list[tuple[str, int]]]:
    queues = {}
    for name, limits in book.policy["queues"].items():
        most = limits | ({"walltime": _hms(limits["walltime"])} if "walltime" in limits else {})
        most = {key: most[key] for key in ("nodect", "walltime") if key in most}
        queues[name] = {"queue_type": "Execution"} | ({"resources_max": most} if most else {})
        queues[name] |= {key: limits.get(key, "True") for key in ("enabled", "started")}
    faults = [(f"Unknown queue {name}", 170) for name in names if name not in queues]
    return {name: queues[name] for name in names or queues if name in queues}, faults


def pbsnodes(book: Book, arguments: list[str]) -> int:
    """pbsnodes(8B): print all nodes, without the jobs on them."""
    if arguments != ["-a"]:
        raise _usage("pbsnodes")
    for number in range(1, book.policy["nodes"] + 1):
        there = f"resources_available.host = n{number}\n     resources_available.ncpus = {book.policy['cpus']}"
        print(f"n{number}\n     Mom = n{number}\n     ntype = PBS\n     state = free\n     {there}\n")
    return 0


def pbs_tmrsh(book: Book, arguments: list[str]) -> int:
    """pbs_tmrsh(8B): run a program on another node of the job; here, under that node's name. No shell interprets its
    arguments. The program is a task of PBS with a session of its own, which PBS ends with the job; processes that
    have left the session stay. For a job that is being ended, nothing is started and no answer comes.
    """
    import shutil

    host, *command_line = arguments or [""]
    while command_line and command_line[0] in {"-n", "-l"}:
        del command_line[: 1 if command_line[0] == "-n" else 2]
    if not host or host.startswith("-") or not command_line:
        raise Refused("usage: pbs_tmrsh host [-n][-l username] command [args]\n       pbs_tmrsh --version", 254)
    with open(os.environ.get("PBS_NODEFILE", os.devnull), encoding="utf-8") as file:
        if host not in file.read().split():
            raise Refused(f"pbs_tmrsh: host {host!r} is not of this job", 254)
    key = os.environ["PBS_JOBID"].partition(".")[0]
    while book.read()["jobs"].get(key, {"deleted": True}).get("deleted"):
        time.sleep(0.1)
    if shutil.which(command_line[0]) is None:
        raise Refused(f"{command_line[0]}: No such file or directory", 254)
    command = [*(batch.as_host(host) if batch.may_rename() else []), *command_line]
    sys.stdout.flush()
    if not (task := os.fork()):
        os.setsid()
        os.execvp(command[0], command)
    with book.change() as content:
        content["jobs"][key].setdefault("tasks", []).append(task)
    return os.waitstatus_to_exitcode(os.waitpid(task, 0)[1]) % 256


PROGRAMS = {
    "qsub": qsub, "qstat": qstat, "qselect": qselect, "qalter": qalter, "qdel": qdel, "pbsnodes": pbsnodes,
    "pbs_tmrsh": pbs_tmrsh,
}  # fmt: skip
