"""A stand-in for OpenPBS 23.06: qsub, qstat, qselect, qdel, pbsnodes, pbs_tmrsh over a state directory, no daemon.

Texts, exit codes, states and variables were seen on OpenPBS 23.06.06; what was not seen there is read in its sources
(github.com/openpbs/openpbs: src/cmds, src/lib/Libcmds, src/server, src/resmom). Refusals of a site are ALCF's.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from tests.standins.batch import (
    Book,
    Content,
    Job,
    Jobs,
    Refused,
    as_host,
    detach,
    install_programs,
    known,
    may_rename,
    slowly,
    user,
    wait_for_turn,
    watch,
)

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable
    from pathlib import Path

PROGRAMS = ("qsub", "qstat", "qselect", "qdel", "pbsnodes", "pbs_tmrsh")
SERVER, VERSION = "pbshost", "23.06.06"

# Seconds of wall time and nodes that a job may ask for; `enabled` and `started` as qstat -Q shows them.
QUEUES: dict[str, dict[str, Any]] = {
    "workq": {},
    "small": {"walltime": 600, "nodect": 2},
}

# second: real seconds that a second of wall time takes. grace: seconds from TERM to KILL. wait: seconds a job is
# queued at least. copy: seconds that spooled output takes to arrive. require: any of account, filesystems, keep.
# filesystems: name -> whether it is up. resources: what the site added to PBS's own. home: HOME of jobs, None for the
# user's.
POLICY: dict[str, Any] = {
    "second": 1.0,
    "grace": 10.0,
    "wait": 0.0,
    "copy": 0.2,
    "nodes": 4,
    "cpus": 8,
    "first": 1,
    "home": None,
    "queues": QUEUES,
    "require": [],
    "filesystems": {},
    "resources": ["filesystems", "system"],
}

_RESOURCES = {
    *("arch", "cput", "file", "host", "mem", "mpiprocs", "ncpus", "ngpus", "nice", "nodect", "nodes", "ompthreads"),
    *("pcput", "place", "pmem", "pvmem", "select", "software", "vmem", "vnode", "walltime"),
}
_COUNTS = {"ncpus", "ngpus", "mpiprocs", "ompthreads", "nodect"}
_TIMES = {"walltime", "cput", "pcput"}
_GETOPT = "a:A:c:C:e:fhIj:J:k:l:m:M:N:o:p:q:r:R:S:u:v:VW:XzP:"
_USAGE = """\
usage: qsub [-a date_time] [-A account_string] [-c interval]
\t[-C directive_prefix] [-e path] [-f ] [-h ] [-I [-X]] [-j oe|eo] [-J X-Y[:Z]]
\t[-k keep] [-l resource_list] [-m mail_options] [-M user_list]
\t[-N jobname] [-o path] [-p priority] [-P project] [-q queue] [-r y|n]
\t[-R o|e|oe] [-S path] [-u user_list] [-W otherattributes=value...]
\t[-v variable_list] [-V ] [-z] [script | -- command [arg1 ...]]
       qsub --version"""
# Substates (src/include/job.h)
_QUEUED, _HELD, _DEPENDS, _RUNNING, _EXITING, _TERMINATED, _FINISHED, _FAILED = 10, 20, 22, 42, 51, 91, 92, 93
_OVER_WALLTIME, _RETRY = -29, -3


def install(folder: Path, state: Path, **policy: Any) -> None:
    """Write the programs into `folder`: with it on PATH they are the batch system. POLICY says what may be given."""
    install_programs(folder, state, __name__, PROGRAMS, known(POLICY, policy))


def main(program: str, state: str) -> int:
    """One command. A file `down` in the state directory makes the server unreachable, `slow` holds seconds, `forget`
    switches off the history of jobs.
    """
    run: dict[str, Callable[[Book, list[str]], int]] = {
        "qsub": qsub,
        "qstat": qstat,
        "qselect": qselect,
        "qdel": qdel,
        "pbsnodes": pbsnodes,
        "pbs_tmrsh": pbs_tmrsh,
    }
    if sys.argv[1:] == ["--version"]:
        print(f"pbs_version = {VERSION}")
        return 0
    try:
        slowly(state)
        if os.path.exists(os.path.join(state, "down")):
            text = f"Connection refused\n{program}: cannot connect to server {SERVER} (errno=111)"
            raise Refused(text, 255 if program == "qstat" else 111)
        return run[program](Book(state), sys.argv[1:])
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return refusal.code


def _seconds(text: str) -> int:
    """Of [[HH:]MM:]SS[.mmm]."""
    if not re.fullmatch(r"\d+(:\d+){0,2}(\.\d+)?", text):
        raise ValueError(text)
    total = 0
    for part in text.partition(".")[0].split(":"):
        total = total * 60 + int(part)
    return total


def _hms(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return "{:02d}:{:02d}:{:02d}".format(*divmod(minutes, 60), rest)


# qsub


class _Request:
    """What the command line and the directives ask for; resources and -W attributes are merged one by one."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.resources: dict[str, str] = {}
        self.attributes: dict[str, str] = {}

    def take(self, words: list[str]) -> list[str]:
        """Parse as getopt(3), the last of an option counts. What is not an option is returned."""
        import getopt

        pairs, rest = getopt.gnu_getopt(words, _GETOPT)
        for flag, value in pairs:
            if flag == "-l":
                self.resources |= _equals(value, "l")
            elif flag == "-W":
                self.attributes |= _equals(value, "W")
            else:
                self.options[flag[1:]] = value.strip() if flag in {"-m", "-p", "-c"} else value
        return rest

    def under(self, other: _Request) -> None:
        """`other`, of higher priority, on top."""
        self.options |= other.options
        self.resources |= other.resources
        self.attributes |= other.attributes


def _equals(text: str, flag: str) -> dict[str, str]:
    """name=value,name=value; commas within quotes do not count, and for -W those that no name= follows."""
    found = {}
    for part in _commas(text) if flag == "l" else re.split(r",(?=\s*\w+=)", text):
        name, equals, value = part.strip().partition("=")
        if not (name and equals and value):
            raise _illegal(flag)
        found[name] = value
    return found


def _commas(text: str) -> list[str]:
    parts = re.findall(r"""((?:[^,"'\\]|\\.|"[^"]*"|'[^']*')+)""", text)
    return [re.sub(r"""\\(.)|["']""", r"\1", part) for part in parts]


def _illegal(flag: str) -> Refused:
    return Refused(f"qsub: illegal -{flag} value\n{_USAGE}", 2)


def qsub(book: Book, arguments: list[str]) -> int:
    request, script, source = _parse(arguments)
    job = _make(book, request, source)
    job["Submit_arguments"] = " ".join(arguments)
    keys = _enqueue(book, job, script)
    if "z" not in request.options:
        print(f"{keys[0]}.{SERVER}")
    for key in keys[1:] or keys:
        detach(book, lambda key=key: _supervise(book, key))  # type: ignore[misc]
    return _block(book, keys[0]) if request.attributes.get("block", "").lower() == "true" else 0


def _parse(arguments: list[str]) -> tuple[_Request, str, str]:
    """The request, the script's text and the name it came from."""
    import getopt

    line = _Request()
    try:
        rest = line.take(arguments)
    except getopt.GetoptError as fault:
        raise Refused(f"qsub: invalid option -- '{fault.opt}'\n{_USAGE}", 2) from None
    if "I" in line.options:
        raise Refused("qsub: interactive jobs are not modelled by this stand-in")
    if "--" in arguments:
        import shlex

        return line, f"#!/bin/sh\nexec {shlex.join(rest)}\n", "STDIN"
    if len(rest) > 1:
        raise Refused(_USAGE, 2)
    name = rest[0] if rest else "-"
    script = _read(name)
    prefix = line.options.get("C", os.environ.get("PBS_DPREFIX", "#PBS"))
    request = _Request()
    for directive in _directives(script, prefix):
        _take_directive(request, directive)
    request.under(line)
    return request, script, "STDIN" if name == "-" else os.path.basename(name)


def _read(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        with open(name, encoding="utf-8", errors="surrogateescape", newline="") as file:
            text = file.read()
    except IsADirectoryError:
        raise Refused("qsub: script not a file") from None
    except OSError as fault:
        raise Refused(f"qsub: script file:: {fault.strerror}") from None
    if "\r\n" in text:
        raise Refused("qsub: script contains cr, lf")
    return text


def _directives(script: str, prefix: str) -> list[str]:
    """Up to the first line that is neither blank nor a comment (check_job_script.c)."""
    found = []
    for line in script.splitlines():
        bare = line.lstrip()
        if prefix and bare.startswith(prefix):
            found.append(bare[len(prefix) :])
        elif bare and not bare.startswith("#") and not line.startswith(":"):
            break
    return found


def _take_directive(request: _Request, text: str) -> None:
    import getopt

    words = _words(text)
    try:
        request.take(words)
    except getopt.GetoptError as fault:
        message = f"qsub: invalid option -- '{fault.opt}'"
    except Refused as refusal:
        message = str(refusal).splitlines()[0]
    else:
        return
    raise Refused(f"{message}\nqsub: directive error: {' '.join(words)} ")


def _words(text: str) -> list[str]:
    """qsub.c, make_argv: quotes of both kinds and backslashes; `#` is nothing special."""
    import shlex

    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        raise Refused("qsub: unmatched ") from None


_VALID = {
    "N": r"[A-Za-z0-9_+.-]{1,230}",
    "j": "oe|eo|n",
    "k": "n|(?!.*(.).*\\1)[oed]{1,3}",
    "R": "(?!.*(.).*\\1)[oe]{1,2}",
    "r": "y|n",
    "m": "n|j?[abe]+j?",
    "p": r"[+-]?\d{1,4}",
    "J": r"\d+-\d+(:\d+)?(%\d+)?",
    "A": r"[^\n]*",
}


def _make(book: Book, request: _Request, source: str) -> Job:
    options = {"N": source} | request.options
    for flag, pattern in _VALID.items():
        if flag in options and not re.fullmatch(pattern, options[flag]):
            raise _illegal(flag)
    resources, chunks = _resources(book, request.resources)
    queue = options.get("q", "workq").partition("@")[0] or "workq"
    _admit(book, queue, options, resources)
    job: Job = {
        "Job_Name": options["N"],
        "owner": user(),
        "queue": queue,
        "resources": resources,
        "chunks": chunks,
        "depend": _depend(request.attributes.pop("depend", "")),
        "options": {flag: options.get(flag) for flag in "AJPSeojkmpr"},
        "variables": _variables(options, queue),
        "workdir": os.environ.get("PWD") if _same(os.environ.get("PWD")) else os.getcwd(),
        "umask": request.attributes.pop("umask", None),
        "held": "h" in options,
    }
    if unknown := request.attributes.keys() - _ATTRIBUTES:
        raise Refused(f"qsub: Undefined attribute  {', '.join(sorted(unknown))}", 154)
    return job


_ATTRIBUTES = {
    *("block", "group_list", "interactive", "release_nodes_on_stageout", "run_count", "sandbox", "stagein", "stageout"),
    "tolerate_node_failures",
}


def _same(path: str | None) -> bool:
    with suppress(OSError):
        return path is not None and os.path.samefile(path, ".")
    return False


def _resources(book: Book, asked: dict[str, str]) -> tuple[dict[str, Any], list[dict[str, int]]]:
    """Resource_List as the server shows it, and the chunks of the selection, each by itself."""
    for name, value in asked.items():
        if name not in _RESOURCES and name not in book.policy["resources"]:
            raise Refused(f"qsub: Unknown resource Resource_List.{name}", 187)
        if (name in _COUNTS and not value.isdigit()) or (name in _TIMES and not _is_time(value)):
            raise _bad_value(name)
    found: dict[str, Any] = dict(asked)
    if "nodes" in asked:
        found["select"], found["place"] = _legacy(found.pop("nodes")), "scatter"
    count = found.setdefault("select", "1:ncpus={}".format(asked.get("ncpus", "1")))
    chunks = _chunks(book, count)
    place = found.setdefault("place", "pack" if "select" not in asked and "nodes" not in asked else "free")
    if not re.fullmatch(r"(free|pack|scatter|vscatter|excl|exclhost|shared|group=\w+)(:[\w=]+)*", place):
        raise _bad_value("place")
    found |= {"ncpus": sum(chunk["ncpus"] for chunk in chunks), "nodect": len(chunks)}
    if any("mpiprocs" in chunk for chunk in chunks):
        found["mpiprocs"] = sum(chunk.get("mpiprocs", 0) for chunk in chunks)
    found |= {name: _hms(_seconds(found[name])) for name in _TIMES & found.keys()}
    return found, chunks


def _is_time(text: str) -> bool:
    return re.fullmatch(r"\d+(:\d+){0,2}(\.\d+)?", text) is not None


def _bad_value(name: str) -> Refused:
    return Refused(f"qsub: Illegal attribute or resource value Resource_List.{name}", 166)


def _legacy(nodes: str) -> str:
    """nodes=2:ppn=4 as the server turns it into a selection."""
    match = re.fullmatch(r"(\d+)(?::ppn=(\d+))?", nodes)
    if not match:
        raise _bad_value("nodes")
    cpus = match[2] or "1"
    return f"{match[1]}:ncpus={cpus}:mpiprocs={cpus}"


def _chunks(book: Book, select: str) -> list[dict[str, int]]:
    chunks = []
    for part in select.split("+"):
        first, *pairs = part.split(":")
        if not first.isdigit():
            first, pairs = "1", [first, *pairs]
        chunk = {"ncpus": 1}
        for pair in pairs:
            name, _, value = pair.partition("=")
            if name not in _RESOURCES and name not in book.policy["resources"]:
                raise Refused("qsub: Unknown resource Resource_List.select", 187)
            if not value or (name in _COUNTS and not value.isdigit()):
                raise _bad_value("select")
            if name in _COUNTS:
                chunk[name] = int(value)
        chunks += [dict(chunk) for _ in range(int(first))]
    if not chunks:
        raise _bad_value("select")
    return chunks


def _admit(book: Book, queue: str, options: dict[str, str], resources: dict[str, Any]) -> None:
    """What a site's hook refuses, then what the queue does."""
    required = book.policy["require"]
    if "account" in required and not options.get("A"):
        raise Refused("qsub: Account_Name is required to be set.", _HOOK)
    if "filesystems" in required and "filesystems" not in resources:
        raise Refused("qsub: Resource: filesystems is required to be set.", _HOOK)
    if "keep" in required and set(options.setdefault("k", "doe")) != set("doe"):
        raise Refused("qsub: -k is required to be doe.", _HOOK)
    limits = book.policy["queues"].get(queue)
    if limits is None:
        raise Refused("qsub: Unknown queue", 170)
    if "walltime" in limits:
        resources.setdefault("walltime", _hms(limits["walltime"]))
    over = "walltime" in limits and _seconds(resources["walltime"]) > limits["walltime"]
    if over or resources["nodect"] > limits.get("nodect", resources["nodect"]):
        raise Refused("qsub: Job violates queue and/or server resource limits", 188)
    if limits.get("enabled", "True") != "True":
        raise Refused("qsub: Queue is not enabled", 173)


_HOOK = 15136 % 256  # PBSE_HOOKERROR (pbs_error.h)


def _depend(text: str) -> list[list[Any]]:
    """type:id:id,type:id"""
    found: list[list[Any]] = []
    for part in text.split(",") if text else []:
        kind, *names = part.split(":")
        if kind not in {"after", "afterok", "afternotok", "afterany"} or not names:
            raise _illegal("W")
        keys = [_key(name) for name in names]
        if None in keys:
            raise _illegal("W")
        found.append([kind, keys])
    return found


def _key(name: str) -> str | None:
    """5, 13[] or 13[2] of a job identifier; None when it is none."""
    match = re.fullmatch(r"(\d+(?:\[\d*\])?)(?:\..*)?", name)
    return match[1] if match else None


def _variables(options: dict[str, str], queue: str) -> dict[str, str]:
    given = {"SHELL": "/bin/bash", "HOME": "", "LOGNAME": user(), "LANG": "C", "PATH": "/usr/bin:/bin", "MAIL": ""}
    found = {f"PBS_O_{name}": os.environ.get(name, value) for name, value in given.items()}
    found |= {"PBS_O_SYSTEM": "Linux", "PBS_O_WORKDIR": os.getcwd(), "PBS_O_QUEUE": queue, "PBS_O_HOST": SERVER}
    if "V" in options:
        found = dict(os.environ) | found
    for part in _commas(options.get("v", "")):
        name, equals, value = part.partition("=")
        if not equals and name not in os.environ:
            raise Refused("qsub: cannot send environment with the job")
        found[name] = value if equals else os.environ[name]
    return found


def _enqueue(book: Book, job: Job, script: str) -> list[str]:
    """Keys of the job, or of an array and its subjobs."""
    with book.change() as content:
        number = content["next"]
        content["next"] += 1
        job["script"] = _keep(book, number, script)
        now = time.time()
        state = ["H", _HELD] if job["held"] else ["H", _DEPENDS] if job["depend"] else ["Q", _QUEUED]
        job |= {"state": state[0], "substate": state[1], "submittime": now, "mtime": now, "exec": None, "comment": None}
        job["arguments"] = job.pop("Submit_arguments")
        indices = _indices(job["options"]["J"])
        whole = f"{number}[]" if indices else str(number)
        content["jobs"][whole] = job | {"key": whole, "index": None}
        keys = [f"{number}[{index}]" for index in indices]
        for key, index in zip(keys, indices, strict=True):
            content["jobs"][key] = job | {"key": key, "index": index}
        if indices and not job["depend"]:
            content["jobs"][whole] |= {"state": "B"}
    return [whole, *keys]


def _indices(text: str | None) -> list[int]:
    if text is None:
        return []
    first, last, step = re.match(r"(\d+)-(\d+)(?::(\d+))?", text).groups(default="1")  # type: ignore[union-attr]
    return list(range(int(first), int(last) + 1, int(step)))


def _keep(book: Book, number: int, script: str) -> str:
    """The server's own copy of the script."""
    folder = os.path.join(book.state, "jobs")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{number}.{SERVER}.SC")
    with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(script)
    os.chmod(path, 0o700)
    return path


def _block(book: Book, key: str) -> int:
    """-W block=true: the job's exit status, as soon as it has one: its output may still be on its way."""
    while True:
        job = book.read()["jobs"].get(key)
        if job is None or job["state"] == "F" or (job["state"] == "E" and "exit" in job):
            return int((job or {}).get("exit", 0)) & 255
        time.sleep(0.03)


# The life of a job


def _supervise(book: Book, key: str) -> None:
    job = wait_for_turn(book, key, _next_state, _settled)
    if job is not None and job["state"] == "R":
        _run(book, job)


def _settled(job: Job) -> bool:
    return job["state"] in {"R", "F"} or job["held"] or (job["comment"] or "").startswith("Can Never Run")


def _next_state(book: Book, content: Content, key: str) -> Job | None:
    """What is to change in a job that has not started, if anything."""
    job: Job = content["jobs"][key]
    if job["state"] in {"R", "E", "F"} or job["held"]:
        return None
    if job["substate"] == _DEPENDS:
        return _after_dependencies(content["jobs"], job)
    if job["substate"] != _QUEUED or time.time() < job["submittime"] + book.policy["wait"]:
        return None
    if never := _never(book, job):
        return {"comment": never}
    hosts = _allocate(book, content["jobs"], job)
    if hosts is None:
        return None
    comment = f"Job run at {time.strftime('%a %b %d at %H:%M')} on {_vnodes(job, hosts)}"
    return {"state": "R", "substate": _RUNNING, "exec": hosts, "stime": time.time(), "comment": comment}


def _after_dependencies(jobs: Jobs, job: Job) -> Job | None:
    """req_register.c: one that cannot be met any more deletes the job, as one on an unknown job does."""
    verdicts = [_met(jobs.get(key), kind) for kind, keys in job["depend"] for key in keys]
    if False in verdicts:
        return {"state": "F", "substate": _FINISHED, "ended": time.time()}
    if all(verdicts):
        return {"state": "Q", "substate": _QUEUED}
    return None


def _met(parent: Job | None, kind: str) -> bool | None:
    """None: not yet known. A job that was deleted counts as failed for afterok whatever its Exit_status says."""
    if parent is None:
        return False
    if kind == "after":
        return True if parent["exec"] else False if parent["state"] == "F" else None
    if parent["state"] != "F":
        return None
    good = parent.get("exit") == 0 and parent["substate"] != _TERMINATED
    return {"afterany": True, "afterok": good, "afternotok": not good}[kind]


def _never(book: Book, job: Job) -> str | None:
    asked = job["resources"].get("filesystems", "")
    for name in asked.split(":") if asked else []:
        if not book.policy["filesystems"].get(name, True):
            return f"Can Never Run: Insufficient amount of server resource: {name}_fs (True != False)"
    if _allocate(book, {}, job) is None:
        return "Can Never Run: Not enough total nodes available"
    return None


def _allocate(book: Book, jobs: Jobs, job: Job) -> list[str] | None:
    """A host for each chunk, with regard to what runs and to `place`."""
    cpus = book.policy["cpus"]
    free = {f"n{number}": cpus for number in range(1, book.policy["nodes"] + 1)}
    for other in jobs.values():
        if other["state"] in {"R", "E"} and other["exec"]:
            for host, chunk in zip(other["exec"], other["chunks"], strict=True):
                free[host] -= cpus if "excl" in other["resources"]["place"] else chunk["ncpus"]
    place = job["resources"]["place"]
    hosts: list[str] = []
    for chunk in job["chunks"]:
        fitting = (host for host in free if _fits(free[host], chunk["ncpus"], host, hosts, place, cpus))
        host = next(fitting, None)
        if host is None:
            return None
        free[host] -= chunk["ncpus"]
        hosts.append(host)
    return hosts


def _fits(free: int, wanted: int, host: str, hosts: list[str], place: str, cpus: int) -> bool:
    if free < wanted or ("scatter" in place and host in hosts):
        return False
    if "excl" in place and free != cpus and host not in hosts:
        return False
    return not ("pack" in place and hosts and host != hosts[0])


def _vnodes(job: Job, hosts: list[str]) -> str:
    pairs = zip(hosts, job["chunks"], strict=True)
    return "+".join(f"({host}:ncpus={chunk['ncpus']})" for host, chunk in pairs)


def _run(book: Book, job: Job) -> None:
    streams = _streams(book, job)
    if any(not os.path.isdir(os.path.dirname(path)) for path, direct in streams.values() if direct):
        _set(book, job, {"state": "H", "substate": _HELD, "exec": None, "exit": _RETRY, "comment": _TOO_MANY})
        return
    with open(_spool(book, job, streams, "o"), "ab") as out, open(_spool(book, job, streams, "e"), "ab") as err:
        child = _start(book, job, out, err)
        _set(book, job, {"session_id": child.pid})
        reason = watch(child, _verdict(book, job, out.fileno()), book.policy["grace"])
    status = child.returncode if child.returncode >= 0 else 256 - child.returncode
    _finish(book, job, status, reason, streams)


def _start(book: Book, job: Job, out: IO[bytes], err: IO[bytes]) -> subprocess.Popen[bytes]:
    """The script by a login shell in the home directory."""
    import subprocess

    environment = _environment(book, job)
    path = job["variables"].get("PATH") or f"/usr/local/bin:/usr/bin:/bin:{book.policy['folder']}"
    shell = job["options"]["S"] or "/bin/bash"
    return subprocess.Popen(
        ["-" + os.path.basename(shell), "-c", f"export PATH='{path}'; exec '{job['script']}'"],
        executable=shell,
        env=environment,
        cwd=environment["HOME"],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
        umask=int(job["umask"] or "22", 8),
    )


_TOO_MANY = "job held, too many failed attempts to run"


def _set(book: Book, job: Job, change: Job) -> None:
    with book.change() as content:
        content["jobs"][job["key"]] |= change | {"mtime": time.time()}
        _end_array(content["jobs"], job["key"])


def _end_array(jobs: Jobs, key: str) -> None:
    """An array has finished when all its subjobs have."""
    number, bracket, _ = key.partition("[")
    if bracket:
        subjobs = [job for name, job in jobs.items() if name.startswith(f"{number}[") and job["index"] is not None]
        if f"{number}[]" in jobs and all(job["state"] == "F" for job in subjobs):
            failed = any(job.get("exit") != 0 for job in subjobs)
            end = {"state": "F", "substate": _FAILED if failed else _FINISHED, "exit": int(failed)}
            jobs[f"{number}[]"] |= end | {"ended": time.time()}


def _finish(book: Book, job: Job, status: int, reason: str | None, streams: dict[str, tuple[str, bool]]) -> None:
    """svr_jobfunc.c, update_job_finish_comment. A job that qdel ended has status 0, one over its time -29."""
    import shutil

    substate, words = (_FINISHED, "finished") if status == 0 else (_FAILED, "failed")
    if reason == "walltime":
        status, substate, words = _OVER_WALLTIME, _FAILED, "exceeded resource walltime"
    elif reason == "user":
        status, substate, words = 0, _TERMINATED, f"terminated by {user()}@{SERVER}"
    _set(book, job, {"state": "E", "substate": _EXITING, "exit": status, "ended": time.time()})
    _deliver(book, job, streams)
    shutil.rmtree(_scratch(book, job), ignore_errors=True)
    comment = f"{job['comment']} and {words}"
    _set(book, job, {"state": "F", "substate": substate, "comment": comment})


def _streams(book: Book, job: Job) -> dict[str, tuple[str, bool]]:
    """Where output (o) and error (e) end up, and whether they are written there at once. A joined one is left out."""
    keep, join = job["options"]["k"] or "n", job["options"]["j"] or "n"
    found = {}
    for letter in "oe":
        if join not in {"n", letter + ("e" if letter == "o" else "o")}:
            continue
        path = _final(job, letter)
        if letter in keep and "d" not in keep:
            path = os.path.join(_home(book), _default_name(job, letter))
        found[letter] = path, letter in keep
    return found


def _default_name(job: Job, letter: str) -> str:
    number, _, index = job["key"].partition("[")
    return f"{job['Job_Name']}.{letter}{number}" + (f".{index[:-1]}" if index[:-1] else "")


def _final(job: Job, letter: str) -> str:
    given = job["options"][letter]
    if given is None:
        return os.path.join(job["workdir"], _default_name(job, letter))
    path: str = os.path.join(job["workdir"], given.partition(":")[2] if re.match(r"[\w.-]+:", given) else given)
    path = path.replace("^array_index^", "" if job["index"] is None else str(job["index"]))
    if given.endswith("/") or os.path.isdir(path):
        return os.path.join(path, f"{job['key']}.{SERVER}.{'OU' if letter == 'o' else 'ER'}")
    return path


def _spool(book: Book, job: Job, streams: dict[str, tuple[str, bool]], letter: str) -> str:
    letter = letter if letter in streams else next(iter(streams))
    path, direct = streams[letter]
    if direct:
        return path
    folder = os.path.join(book.state, "spool")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, f"{job['key']}.{SERVER}.{'OU' if letter == 'o' else 'ER'}")


def _deliver(book: Book, job: Job, streams: dict[str, tuple[str, bool]]) -> None:
    """Spooled output goes to its place; what cannot go there stays undelivered."""
    import shutil

    spooled = [letter for letter, (_, direct) in streams.items() if not direct]
    if spooled:
        time.sleep(book.policy["copy"])
    for letter in spooled:
        with suppress(OSError):
            spool = _spool(book, job, streams, letter)
            shutil.copyfile(spool, streams[letter][0])
            os.unlink(spool)


def _home(book: Book) -> str:
    import pwd

    return str(book.policy["home"] or pwd.getpwuid(os.getuid()).pw_dir)


def _scratch(book: Book, job: Job) -> str:
    return os.path.join(book.state, "tmp", f"pbs.{job['key']}.{SERVER}")


def _environment(book: Book, job: Job) -> dict[str, str]:
    key, home = job["key"], _home(book)
    aux, scratch = os.path.join(book.state, "aux"), _scratch(book, job)
    for folder in (aux, scratch):
        os.makedirs(folder, exist_ok=True)
    nodefile = os.path.join(aux, f"{key}.{SERVER}")
    with open(nodefile, "w", encoding="utf-8") as file:
        chunks = zip(job["exec"], job["chunks"], strict=True)
        file.writelines(f"{host}\n" * chunk.get("mpiprocs", 1) for host, chunk in chunks)
    first = job["chunks"][0]
    found: dict[str, str] = job["variables"] | {
        "HOME": home,
        "LOGNAME": job["owner"],
        "USER": job["owner"],
        "SHELL": "/bin/bash",
        "PBS_JOBNAME": job["Job_Name"],
        "PBS_JOBID": f"{key}.{SERVER}",
        "PBS_QUEUE": job["queue"],
        "PBS_JOBCOOKIE": f"{job['submittime']:032.0f}",
        "PBS_NODENUM": "0",
        "PBS_TASKNUM": "1",
        "PBS_MOMPORT": "15003",
        "PBS_NODEFILE": nodefile,
        "PBS_JOBDIR": home,
        "PBS_ENVIRONMENT": "PBS_BATCH",
        "ENVIRONMENT": "BATCH",
        "TMPDIR": scratch,
        "NCPUS": str(first["ncpus"]),
        "OMP_NUM_THREADS": str(first.get("ompthreads", first["ncpus"])),
    }
    if job["options"]["A"]:
        found["PBS_ACCOUNT"] = job["options"]["A"]
    if job["index"] is not None:
        found |= {"PBS_ARRAY_INDEX": str(job["index"]), "PBS_ARRAY_ID": f"{key.partition('[')[0]}[].{SERVER}"}
    return found


def _verdict(book: Book, job: Job, output: int) -> Callable[[], str | None]:
    limit = _seconds(job["resources"]["walltime"]) if "walltime" in job["resources"] else None
    second = book.policy["second"]
    seen: list[tuple[int, int]] = []

    def verdict() -> str | None:
        used = (time.time() - job["stime"]) / second
        if limit is not None and used > limit:
            message = f"=>> PBS: job killed: walltime {int(used)} exceeded limit {limit}\n"
            os.write(output, message.encode())
            return "walltime"
        try:
            if (stamp := book.stamp()) in seen:
                return None
            seen[:] = [stamp]
            now = book.read()["jobs"].get(job["key"])
        except FileNotFoundError:
            return "lost"
        return "user" if now is None or now.get("deleted") else None

    return verdict


# qdel, qselect


def qdel(book: Book, arguments: list[str]) -> int:
    import getopt

    try:
        options, names = getopt.gnu_getopt(arguments, "W:x")
    except getopt.GetoptError:
        names = []
    if not names:
        text = "usage:\n\tqdel [-W force|suppress_email=X] [-x] job_identifier...\n\tqdel --version"
        raise Refused(text, 2)
    code = 0
    with book.change() as content:
        for name in names:
            code = _delete(book, content["jobs"], name, history=("-x", "") in options) or code
    return code


def _delete(book: Book, jobs: Jobs, name: str, history: bool) -> int:
    key = _key(name)
    if key is None:
        print(f"qdel: illegally formed job identifier: {name}", file=sys.stderr)
        return 1
    job = _visible(book, jobs, key)
    if job is None:
        print(f"qdel: Unknown Job Id {_full(name)}", file=sys.stderr)
        return 153
    if job["state"] == "F" and not history:
        print(f"qdel: Job has finished {_full(name)}", file=sys.stderr)
        return 35
    number = key.partition("[")[0]
    family = [one for one in jobs if one == key or (key.endswith("[]") and one.startswith(f"{number}["))]
    for one in family:
        _end(jobs[one])
    _end_array(jobs, key)
    for one in family if history else []:
        if jobs[one]["state"] == "F":
            del jobs[one]
    return 0


def _end(job: Job) -> None:
    if job["state"] in {"R", "E"}:
        job["deleted"] = True
    elif job["state"] != "F" and not (job["key"].endswith("[]") and job["state"] == "B"):
        job |= {"state": "F", "substate": _TERMINATED, "ended": time.time()}


def _full(name: str) -> str:
    return name if "." in name else f"{name}.{SERVER}"


def _visible(book: Book, jobs: Jobs, key: str) -> Job | None:
    job = jobs.get(key)
    gone = job is not None and job["state"] == "F" and os.path.exists(os.path.join(book.state, "forget"))
    return None if gone else job


def qselect(book: Book, arguments: list[str]) -> int:
    import getopt

    usage = "usage: qselect [-A acct] [-H] [-J] [-N jobname] [-P project] [-q destination] [-s states] [-u user] [-x]"
    try:
        pairs, rest = getopt.gnu_getopt(arguments, "A:HJN:P:q:s:u:x")
    except getopt.GetoptError as fault:
        raise Refused(f"qselect: invalid option -- '{fault.opt}'\n{usage}", 2) from None
    if rest:
        raise Refused(usage, 2)
    given = {flag[1:]: value for flag, value in pairs}
    queue = given.get("q", "").partition("@")[0]
    if queue and queue not in book.policy["queues"]:
        raise Refused("qselect: Unknown queue", 170)
    jobs = book.read()["jobs"]
    for key, job in jobs.items():
        if _visible(book, jobs, key) and job["index"] is None and _selected(job, given, queue):
            print(f"{key}.{SERVER}")
    return 0


def _selected(job: Job, given: dict[str, str], queue: str) -> bool:
    finished = job["state"] == "F"
    if (finished and not given.keys() & {"x", "H"}) or ("H" in given and not finished):
        return False
    states = given.get("s", "").rpartition(".")[2]
    users = {name.partition("@")[0] for name in str(given.get("u", job["owner"])).split(",")}
    options = job["options"]
    return (
        given.get("N", job["Job_Name"]) == job["Job_Name"]
        and queue in {"", job["queue"]}
        and job["owner"] in users
        and (not states or job["state"] in states)
        and all(given.get(flag, options[flag]) == options[flag] for flag in "AP")
        and ("J" not in given or job["key"].endswith("[]"))
    )


# qstat


class _Status:
    """What one qstat was asked: flags, output format and operands, and the exit code that comes of it."""

    def __init__(self, book: Book, arguments: list[str]) -> None:
        import getopt

        usage = "usage: qstat [-f] [-F json|default] [-x] [-t] [-u user] [-Q] [-B] [job_identifier...|destination...]"
        try:
            pairs, self.names = getopt.gnu_getopt(arguments, "ainpqrstwxu:fGHJMQEBW:T1F:D:")
        except getopt.GetoptError as fault:
            raise Refused(f"qstat: invalid option -- '{fault.opt}'\n{usage}", 2) from None
        self.flags = {flag[1:]: value for flag, value in pairs}
        self.json = self.flags.get("F", "").lower() == "json"
        if self.flags.get("F", "default").lower() not in {"json", "default"}:
            raise Refused(f"qstat: Invalid or unsupported -F value\n{usage}", 2)
        self.book, self.jobs, self.code = book, book.read()["jobs"], 0

    def complain(self, text: str, code: int) -> None:
        print(f"qstat: {text}", file=sys.stderr)
        self.code = code


def qstat(book: Book, arguments: list[str]) -> int:
    status = _Status(book, arguments)
    if "B" in status.flags:
        _show(status, "Server", {SERVER: _server(book, status.jobs)}, _server_table)
    elif "Q" in status.flags:
        _show(status, "Queue", _queues(status), _queue_table)
    else:
        found = {f"{job['key']}.{SERVER}": _attributes(book, job) for job in _asked(status)}
        _show(status, "Jobs", found, _job_table)
    return status.code


def _asked(status: _Status) -> list[Job]:
    """The jobs named, or all; those not found are complained about while the others are shown."""
    found: list[Job] = []
    for name in status.names:
        key = _key(name)
        if key is None:
            found += _of_queue(status, name)
        elif (job := _visible(status.book, status.jobs, key)) is None:
            status.complain(f"Unknown Job Id {_full(name)}", 153)
        elif job["state"] == "F" and not _historical(status):
            text = f"{_full(name)} Job has finished, use -x or -H to obtain historical job information"
            status.complain(text, 35)
        else:
            found += [job, *_subjobs(status, job)]
    return found if status.names else _of_queue(status, None)


def _historical(status: _Status) -> bool:
    return bool(status.flags.keys() & {"x", "H"})


def _of_queue(status: _Status, name: str | None) -> list[Job]:
    if name is not None and name.partition("@")[0] not in {"", *status.book.policy["queues"]}:
        status.complain(f"Unknown queue {name}", 170)
        return []
    queue = (name or "").partition("@")[0]
    found: list[Job] = []
    for key, job in status.jobs.items():
        wanted = queue in {"", job["queue"]} and status.flags.get("u", job["owner"]) == job["owner"]
        shown = _visible(status.book, status.jobs, key) and (job["state"] != "F" or _historical(status))
        if wanted and shown and job["index"] is None:
            found += [job, *_subjobs(status, job)]
    return found


def _subjobs(status: _Status, job: Job) -> list[Job]:
    if "t" not in status.flags or not job["key"].endswith("[]"):
        return []
    prefix = job["key"][:-1]
    return [one for key, one in status.jobs.items() if key.startswith(prefix) and one["index"] is not None]


def _date(seconds: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(seconds))


def _attributes(book: Book, job: Job) -> Job:
    """What qstat -f shows of a job, in its order."""
    options, finished = job["options"], job["state"] == "F"
    found: Job = {"Job_Name": job["Job_Name"], "Job_Owner": f"{job['owner']}@{SERVER}"}
    if job.get("stime"):
        used = (job.get("ended") or time.time()) - job["stime"]
        found["resources_used"] = _used(job, used / book.policy["second"])
    found |= {"job_state": job["state"], "queue": job["queue"], "server": SERVER, "Checkpoint": "u"}
    if options["A"]:
        found["Account_Name"] = options["A"]
    if job["depend"]:
        found["depend"] = ",".join(
            ":".join([kind, *(f"{key}.{SERVER}@{SERVER}" for key in keys)]) for kind, keys in job["depend"]
        )
    found |= {"ctime": _date(job["submittime"]), "Error_Path": f"{SERVER}:{_final(job, 'e')}"}
    if job["exec"]:
        found |= {"exec_host": _hosts(job), "exec_vnode": _vnodes(job, job["exec"])}
    found |= {
        "Hold_Types": "u" if job["held"] else "s" if job["state"] == "H" else "n",
        "Join_Path": options["j"] or "n",
        "Keep_Files": options["k"] or "n",
        "Mail_Points": options["m"] or "a",
        "mtime": _date(job["mtime"]),
        "Output_Path": f"{SERVER}:{_final(job, 'o')}",
        "Priority": int(options["p"] or 0),
        "qtime": _date(job["submittime"]),
        "Rerunable": "False" if options["r"] == "n" else "True",
        "Resource_List": {name: _parsed(value) for name, value in sorted(job["resources"].items())},
    }
    if job.get("stime"):
        found |= {"stime": _date(job["stime"]), "session_id": job.get("session_id", 0), "jobdir": _home(book)}
    found |= {"substate": job["substate"], "Variable_List": job["variables"]}
    if job["comment"]:
        found["comment"] = job["comment"]
    found |= {"etime": _date(job["submittime"]), "run_count": int(job["exec"] is not None)}
    if "exit" in job:
        found["Exit_status"] = job["exit"]
    found |= {"Submit_arguments": job["arguments"], "project": options["P"] or "_pbs_project_default"}
    if finished:
        found["history_timestamp"] = int(job["ended"])
    return found


def _used(job: Job, seconds: float) -> Job:
    kept = {"cpupercent": 0, "cput": "00:00:00", "mem": "0kb", "ncpus": job["resources"]["ncpus"], "vmem": "0kb"}
    return kept | {"walltime": _hms(seconds)}


def _parsed(value: Any) -> Any:
    """As qstat.c: what reads as a number is one in JSON."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _hosts(job: Job) -> str:
    pairs = zip(job["exec"], job["chunks"], strict=True)
    return "+".join(f"{host}/0" + (f"*{chunk['ncpus']}" if chunk["ncpus"] > 1 else "") for host, chunk in pairs)


def _counts(jobs: Iterable[Job]) -> str:
    names = {"Transit": "T", "Queued": "Q", "Held": "H", "Waiting": "W", "Running": "R", "Exiting": "E", "Begun": "B"}
    states = [job["state"] for job in jobs if job["index"] is None]
    return "".join(f"{name}:{states.count(letter)} " for name, letter in names.items())


def _queues(status: _Status) -> dict[str, Job]:
    queues = status.book.policy["queues"]
    for name in status.names:
        if name not in queues:
            status.complain(f"Unknown queue {name}", 170)
    found = {}
    for name, limits in queues.items():
        if status.names and name not in status.names:
            continue
        jobs = [job for job in status.jobs.values() if job["queue"] == name and job["state"] != "F"]
        most = {key: limits[key] for key in ("walltime", "nodect") if key in limits}
        if "walltime" in most:
            most["walltime"] = _hms(most["walltime"])
        found[name] = {"queue_type": "Execution", "total_jobs": len(jobs), "state_count": _counts(jobs)}
        found[name] |= {"resources_max": most} if most else {}
        found[name] |= {key: limits.get(key, "True") for key in ("enabled", "started")}
    return found


def _server(book: Book, jobs: Jobs) -> Job:
    up = book.policy["filesystems"]
    available = {f"{name}_fs": str(value) for name, value in up.items()}
    if up:
        available["valid_filesystems"] = ",".join(up)
    live = [job for job in jobs.values() if job["state"] != "F"]
    found: Job = {"server_state": "Active", "server_host": SERVER, "scheduling": "True", "total_jobs": len(live)}
    found |= {"state_count": _counts(live), "default_queue": "workq"}
    found |= {"resources_available": available} if available else {}
    history = "False" if os.path.exists(os.path.join(book.state, "forget")) else "True"
    return found | {"job_history_enable": history, "pbs_version": VERSION}


def _show(status: _Status, kind: str, found: dict[str, Job], table: Callable[[dict[str, Job]], list[str]]) -> None:
    if status.json:
        root: Job = {"timestamp": int(time.time()), "pbs_version": VERSION, "pbs_server": SERVER}
        print(json.dumps(root | ({kind: found} if found else {}), indent=4, separators=(",", ":")))
    elif "f" in status.flags:
        for name, attributes in found.items():
            _show_full({"Jobs": "Job Id", "Queue": "Queue", "Server": "Server"}[kind], name, attributes)
    elif found:
        print("\n".join(table(found)))


def _show_full(title: str, name: str, attributes: Job) -> None:
    print(f"{title}: {name}")
    for key, value in attributes.items():
        if key == "Variable_List":
            print(f"    {key} = {','.join(f'{one}={text}' for one, text in value.items())}")
        elif isinstance(value, dict):
            for part, text in value.items():
                print(f"    {key}.{part} = {text}")
        else:
            print(f"    {key} = {value}")
    print()


def _job_table(found: dict[str, Job]) -> list[str]:
    lines = ["Job id            Name             User              Time Use S Queue"]
    lines.append("----------------  ---------------- ----------------  -------- - -----")
    for name, job in found.items():
        used = job.get("resources_used", {}).get("cput", "0")
        user = job["Job_Owner"].partition("@")[0]
        row = f"{name[:17]:<17} {job['Job_Name'][:16]:<16} {user[:16]:<16}  {used:>8} {job['job_state']} {job['queue']}"
        lines.append(row)
    return lines


def _queue_table(found: dict[str, Job]) -> list[str]:
    lines = ["Queue              Max   Tot Ena Str   Que   Run   Hld   Wat   Trn   Ext Type"]
    lines.append("---------------- ----- ----- --- --- ----- ----- ----- ----- ----- ----- ----")
    for name, queue in found.items():
        count = dict(pair.split(":") for pair in queue["state_count"].split())
        ready = ["yes" if queue[key] == "True" else "no" for key in ("enabled", "started")]
        cells = [count[key] for key in ("Queued", "Running", "Held", "Waiting", "Transit", "Exiting")]
        row = f"{name:<16} {0:>5} {queue['total_jobs']:>5} {ready[0]:>3} {ready[1]:>3}"
        lines.append(f"{row} {' '.join(f'{cell:>5}' for cell in cells)} Exec")
    return lines


def _server_table(found: dict[str, Job]) -> list[str]:
    lines = ["Server             Max   Tot   Que   Run   Hld   Wat   Trn   Ext Status"]
    lines.append("---------------- ----- ----- ----- ----- ----- ----- ----- ----- -----------")
    for name, server in found.items():
        count = dict(pair.split(":") for pair in server["state_count"].split())
        cells = [count[key] for key in ("Queued", "Running", "Held", "Waiting", "Transit", "Exiting")]
        row = f"{name:<16} {0:>5} {server['total_jobs']:>5} {' '.join(f'{cell:>5}' for cell in cells)}"
        lines.append(f"{row} {server['server_state']}")
    return lines


# pbsnodes, pbs_tmrsh


def pbsnodes(book: Book, arguments: list[str]) -> int:
    """pbsnodes(8B), all nodes; of what they run nothing is said."""
    if arguments != ["-a"]:
        raise Refused("usage: pbsnodes -a, the other forms are not modelled by this stand-in", 2)
    for number in range(1, book.policy["nodes"] + 1):
        facts = {"Mom": f"n{number}", "ntype": "PBS", "state": "free", "pcpus": book.policy["cpus"]}
        there = {"arch": "linux", "host": f"n{number}", "ncpus": book.policy["cpus"], "vnode": f"n{number}"}
        facts |= {f"resources_available.{name}": value for name, value in there.items()}
        print(f"n{number}", *(f"     {name} = {value}" for name, value in facts.items()), sep="\n", end="\n\n")
    return 0


def pbs_tmrsh(_book: Book, arguments: list[str]) -> int:
    """pbs_tmrsh(8B): a command on another node of the job, for launchers that know rsh. Here, under its name."""
    words = list(arguments)
    host = words.pop(0) if words and not words[0].startswith("-") else ""
    while words and words[0] in {"-n", "-l"}:
        del words[: 1 if words[0] == "-n" else 2]
    if not host or not words:
        raise Refused("usage: pbs_tmrsh host [-n][-l username] command [args]\n       pbs_tmrsh --version", 254)
    with open(os.environ.get("PBS_NODEFILE", os.devnull), encoding="utf-8") as file:
        if host not in file.read().split():
            raise Refused(f"pbs_tmrsh: host {host!r} is not of this job", 254)
    sys.stdout.flush()
    command = [*(as_host(host) if may_rename() else []), "/bin/sh", "-c", " ".join(words)]
    os.execvp(command[0], command)
