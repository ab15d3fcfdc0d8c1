"""The log of --log-file has what a maintainer needs, in whole lines, and no secrets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dlio_hpc import __version__
from dlio_hpc.base import log_file, redaction
from tests.conftest import BIN, Run

_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \d+ (start|stderr|run|traceback|end) .+")
_PROGRAM = """
import sys
from dlio_hpc.base import log_file
with log_file.opened("log", ["program", sys.argv[1]], "test"):
    for number in range(100):
        log_file.record("stderr", f"{number} {sys.argv[1] * 2000}\\n{number} {sys.argv[1] * 3000}")
"""


def _lines(path: Path) -> list[tuple[str, str]]:
    """Return the kind and the text of each line of a log."""
    lines = path.read_text().splitlines()
    assert all(map(_LINE.fullmatch, lines)), lines
    return [(line.split(" ", 3)[2], line.split(" ", 3)[3]) for line in lines]


@pytest.mark.parametrize("arguments", [
    ("dlio-hpc", "--log-file", "log", "status", "absent"),
    ("dlio-hpc", "status", "absent", "--log-file=log"),
])  # fmt: skip
def test_a_command_is_recorded_from_its_start_to_its_end(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    begin, message, end = _lines(tmp_path / "log")
    assert begin[0] == "start"
    assert begin[1].startswith(f"dlio-hpc status absent (dlio-hpc {__version__}, Python ")
    assert begin[1].endswith(f":{tmp_path})")
    assert message == ("stderr", done.err.strip())
    assert end == ("end", "exit code 2")
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0
    run("dlio-hpc", "status", "absent", DLIO_HPC_LOG_FILE="log")
    assert len(_lines(tmp_path / "log")) == 6, "the second command appends"


def test_dlio_submit_has_the_option(run: Run, tmp_path: Path) -> None:
    dry = run("dlio-submit", "demo", "-s", "local", "--dry-run", "-N", "9", "--log-file", "log")
    assert dry.code == 2
    kinds = [kind for kind, _ in _lines(tmp_path / "log")]
    assert kinds == ["start", "stderr", "end"]
    assert _lines(tmp_path / "log")[0][1].startswith("dlio-submit demo -s local")
    for program in (("dlio-hpc",), ("dlio-submit",)):
        assert "--log-file FILE" in run(*program, "--help").out
    for arguments in (("dlio-hpc", "status"), ("dlio-submit", "demo"), ("dlio-hpc",)):
        assert "Option '--log-file' requires an argument" in run(*arguments, "--log-file").err


def test_errors_of_the_command_line_are_recorded(run: Run, tmp_path: Path) -> None:
    run("dlio-submit", "--nonsense", "--log-file", "log")
    run("dlio-hpc", "nonsense", DLIO_HPC_LOG_FILE="log")
    messages = [text for kind, text in _lines(tmp_path / "log") if kind == "stderr"]
    assert "--nonsense" in messages[0]
    assert "No such command 'nonsense'" in messages[1]


def test_commands_of_the_machine_are_recorded(run: Run, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sbatch").write_text("#!/bin/sh\necho no controller >&2\nexit 3\n")
    (tools / "sbatch").chmod(0o755)
    run("dlio-hpc", "doctor", "-s", "slurm", "--log-file", "log", PATH=f"{tools}:/usr/bin:/bin")
    commands = [text for kind, text in _lines(tmp_path / "log") if kind == "run"]
    assert re.fullmatch(r"sbatch --version \(exit code 3: no controller, \d+\.\d{3} s\)", commands[0])
    assert any(re.fullmatch(r".*python\S* -c .* \(exit code 0, \d+\.\d{3} s\)", text) for text in commands)


def test_concurrent_processes_append_whole_lines(tmp_path: Path) -> None:
    environment = dict(os.environ)
    started = [
        subprocess.Popen([sys.executable, "-c", _PROGRAM, letter], cwd=tmp_path, env=environment) for letter in "ab"
    ]
    assert [process.wait() for process in started] == [0, 0]
    lines = [text for kind, text in _lines(tmp_path / "log") if kind == "stderr"]
    assert len(lines) == 2 * 100 * 2
    for letter in "ab":
        own = [line for line in lines if line.endswith(letter)]
        assert own == [f"{number} {letter * times}" for number in range(100) for times in (2000, 3000)]


@pytest.mark.parametrize(("path", "code"), [("absent/log", 2), ("folder", 2), ("/proc/version", 6), ("/dev/full", 6)])
def test_a_log_that_cannot_be_written_is_an_error_before_anything_is_done(
    run: Run, tmp_path: Path, path: str, code: int
) -> None:
    if path == "/proc/version" and os.geteuid() == 0:
        path = "/sys/kernel/vmcoreinfo"  # refuses root, too
    (tmp_path / "folder").mkdir()
    done = run("dlio-submit", "demo", "-s", "local", "--log-file", path, "--json")
    assert done.code == code
    assert done.err.startswith(f"dlio-submit: cannot write the log {path}: ")
    assert "--log-file or DLIO_HPC_LOG_FILE" in done.err
    assert done.json["error"]["exit_code"] == code
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder"]


def test_a_log_that_fails_later_does_not_end_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with log_file.opened(str(tmp_path / "log"), ["x"], "test"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda *_: 0)
            log_file.record("stderr", "lost")
            log_file.record("stderr", "lost")
        log_file.record("stderr", "nothing more")
    assert capsys.readouterr().err == (
        f"dlio-hpc: the log {tmp_path / 'log'} ends here: only a part of a record was written\n"
    )
    assert len(_lines(tmp_path / "log")) == 1


def test_secrets_are_left_out(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dlio-hpc").mkdir()
    (tmp_path / "dlio-hpc" / "defaults.yaml").write_text("account: proj-43\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sbatch").write_text(
        "#!/bin/sh\necho accounts proj-43, proj-42 and s3cret-t0ken are unknown >&2\nexit 1\n"
    )
    (tools / "sbatch").chmod(0o755)
    variables = {"DLIO_HPC_API_TOKEN": "s3cret-t0ken", "XDG_CONFIG_HOME": str(tmp_path)}
    path = f"{tools}:{BIN}:/usr/bin:/bin"
    run("dlio-hpc", "doctor", "-s", "slurm", "--log-file", "log", DLIO_HPC_ACCOUNT="proj-42", PATH=path, **variables)
    run(
        "dlio-submit", "absent", "-A", "proj-44", "-S", "site.token=abc", "-J", "--account=proj-45",
        "-d", "http://me:pa55word@host/x", "--log-file", "log", **variables,
    )  # fmt: skip
    text = (tmp_path / "log").read_text()
    for secret in ("proj-42", "proj-43", "proj-44", "proj-45", "abc", "pa55word", "s3cret-t0ken"):
        assert secret not in text
    assert "-A HIDDEN -S site.token=HIDDEN -J --account=HIDDEN -d http://host/x" in text
    assert "accounts HIDDEN, HIDDEN and HIDDEN are unknown" in text


@pytest.mark.parametrize(("given", "shown"), [
    (["sbatch", "-Aproj", "job.sh"], ["sbatch", "-AHIDDEN", "job.sh"]),
    (["x", "--token", "secret", "y"], ["x", "--token", "HIDDEN", "y"]),
    (["-S", "site.environment={API_KEY: hunter3}"], ["-S", "site.environment={API_KEY: HIDDEN}"]),
    (["-S", '{"API_KEY": "zz z2"}'], ["-S", '{"API_KEY": HIDDEN}']),
    (["-S", 'site.setup=["export HF_TOKEN=\\"hunter2 abc\\""]'], ["-S", 'site.setup=["export HF_TOKEN=HIDDEN"]']),
    (["-S", "x=export HF_TOKEN='hunter2'"], ["-S", "x=export HF_TOKEN=HIDDEN"]),
    (["-J", "--export=ALL,WANDB_API_KEY=zzz9"], ["-J", "--export=ALL,WANDB_API_KEY=HIDDEN"]),
    (["--env=AWS_SECRET_ACCESS_KEY=zzz12"], ["--env=AWS_SECRET_ACCESS_KEY=HIDDEN"]),
    (["unknown key: nodez"], ["unknown key: nodez"]),
    (["x", "--account", "-A", "y"], ["x", "--account", "HIDDEN", "y"]),
    (["sh", "-c", "qsub -A proj j && K_TOKEN=1 x"], ["sh", "-c", "qsub -A HIDDEN j && K_TOKEN=HIDDEN x"]),
    (["lfs", "getstripe", "-d", "/a/b=c"], ["lfs", "getstripe", "-d", "/a/b=c"]),
])  # fmt: skip
def test_arguments_without_secrets(given: list[str], shown: list[str]) -> None:
    assert redaction.of_arguments(given).arguments == shown
