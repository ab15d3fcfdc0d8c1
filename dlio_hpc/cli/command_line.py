"""Start and end of a command: its outputs, its log, its failures and its exit code."""

import contextlib
import gc
import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from dlio_hpc import __version__

if TYPE_CHECKING:
    from dlio_hpc.base.errors import DlioError
    from dlio_hpc.documents.versioned import FailureKind


def main() -> None:
    """Run dlio-hpc."""
    _run("dlio-hpc", sys.argv[1:])


def submit_main() -> None:
    """Run dlio-submit, an alias of dlio-hpc submit."""
    _run("dlio-submit", ["submit", *sys.argv[1:]])


def _run(program: str, arguments: list[str]) -> None:
    _open_outputs()
    if arguments in (["--version"], ["submit", "--version"]):
        print(f"{program} {__version__}")  # before the slow import of click: scripts ask for the version often
        return

    # Objects from the start-up live to the end. Scanning them would take a tenth of the time of a short command.
    gc.disable()
    code = _guarded_exit_code(program, arguments)
    gc.freeze()
    sys.exit(code)


def _guarded_exit_code(program: str, arguments: list[str]) -> int:
    """Run the command and return its exit code, even if a package cannot be imported that reports of failures need."""
    try:
        return exit_code(program, arguments)
    except Exception as fault:
        from dlio_hpc.base.errors import of_import

        if (known := of_import(fault)) is None:
            raise
        print(f"{program}: {known}", file=sys.stderr)
        return known.exit_code


def exit_code(program: str, arguments: list[str]) -> int:
    """Run the command and return its exit code. If the command fails, report the failure in one line on stderr. With
    --json, a command that fails before it has printed a result prints a document with the reason on stdout.
    """
    from dlio_hpc.base import log_file
    from dlio_hpc.base.errors import DlioError

    try:
        rest, path = _split_log(arguments)
    except DlioError as fault:
        return _document_of_end(program, arguments, fault)
    if path is None or _is_completing(program):
        return _document_of_end(program, rest)
    # click reads the variable as the value of the option, which is not on the command line any more.
    command = [program, *(rest if program == "dlio-hpc" else rest[1:])]
    try:
        with log_file.opened(path, command, _versions(), _account()):
            code = _document_of_end(program, rest)
            log_file.record("end", f"exit code {code}")
            return code
    except DlioError as fault:
        return _document_of_end(program, rest, fault)


def _split_log(arguments: list[str]) -> tuple[list[str], str | None]:
    """Return two values: the arguments without the option --log-file, which may be anywhere before "--", and the path
    of the log; None if no log is wanted. If the option has no value, return arguments for which click reports the
    missing value. Raise ConfigError if the value is empty, or is another option.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    path = os.path.expanduser(os.environ.get("DLIO_HPC_LOG_FILE", "")) or None
    rest: list[str] = []
    place = 0
    while place < end:
        argument = arguments[place]
        if argument == "--log-file":
            place += 1
            if place == end:
                return [*(["submit"] if arguments[0] == "submit" else []), argument], None
            path = _log_path(arguments[place])
        elif argument.startswith("--log-file="):
            path = _log_path(argument.partition("=")[2], is_attached=True)
        else:
            rest.append(argument)
        place += 1
    return [*rest, *arguments[end:]], path


def _log_path(text: str, is_attached: bool = False) -> str:
    """Return the value of the option --log-file. Raise ConfigError if it is empty or an option. is_attached: whether
    the value is given after =, where it may be the name of an option.
    """
    from dlio_hpc.base.errors import ConfigError

    if not text:
        raise ConfigError("--log-file is empty, perhaps because a variable is not set; give the name of a file")
    if text.startswith("-") and not is_attached:
        raise ConfigError(
            f"--log-file takes a value, but {text!r} is an option; if it is the value, write --log-file={text}"
        )
    return os.path.expanduser(text)


def _versions() -> str:
    return f"dlio-hpc {__version__}, Python {sys.version.split()[0]}"


def _account() -> list[str]:
    """Return the account in a file defaults.yaml. An error in the file is reported by the command itself."""
    from dlio_hpc.base.errors import DlioError
    from dlio_hpc.config import defaults

    try:
        known = defaults.load().get("account")
    except DlioError:
        return []
    return [] if known is None else [str(known.value)]


def _is_completing(program: str) -> bool:
    """Return whether a shell asks for completion, which click handles."""
    return bool(os.environ.get(f"_{program.replace('-', '_').upper()}_COMPLETE"))


class _End(NamedTuple):
    """End of a command. kind, message: class and text of the error; empty if there was none."""

    code: int
    kind: str = ""
    message: str = ""


def _document_of_end(program: str, arguments: list[str], refusal: "DlioError | None" = None) -> int:
    """Run the command and return its exit code. With --json, print the output of the command on stdout. If the command
    failed and printed nothing, print a document with the reason instead. refusal: error that prevents the command from
    running.
    """

    def run() -> object:
        if refusal is not None:
            raise refusal
        return _called(program, arguments)

    if not _wants_json(arguments):
        return _attempt(program, arguments, run).code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        end = _attempt(program, arguments, run)
    text = printed.getvalue() or _failure(end)
    written = _attempt(program, arguments, lambda: sys.stdout.write(text) and None)
    return end.code or written.code


def _wants_json(arguments: list[str]) -> bool:
    """Return whether a JSON document is requested, by --json or by its environment variable."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return "--json" in arguments[:end] or os.environ.get("DLIO_HPC_JSON", "").lower() in _TRUE


# Values with which click takes the environment variable of a flag for set.
_TRUE = {"1", "true", "t", "yes", "y", "on"}


def _failure(end: _End) -> str:
    """Return the document of a command that failed without a result, or "" if it did not fail."""
    if not end.code:
        return ""
    from dlio_hpc.base import serialization
    from dlio_hpc.base.errors import kind_of
    from dlio_hpc.documents.versioned import CommandFailure, FailureDocument

    kind = end.kind or kind_of(end.code).__name__
    failure = CommandFailure(cast("FailureKind", kind), end.message or "see stderr", end.code)
    return serialization.encode(FailureDocument(failure)).decode()


def _attempt(program: str, arguments: list[str], action: Callable[[], object]) -> _End:
    """Call `action` and flush stdout. Report a failure in one line on stderr. Return the end of the command."""
    import click

    from dlio_hpc.base.errors import Incomplete, InfrastructureError, Unexpected, classified, of_import

    try:
        code = action()
        sys.stdout.flush()
        return _End(code if isinstance(code, int) else 0)
    except click.ClickException as fault:
        from dlio_hpc.cli import usage_faults

        improved = usage_faults.improved(fault)
        _record(improved.format_message())
        usage_faults.show(program, improved)
        return _End(improved.exit_code, "UsageError", improved.format_message())
    except SystemExit as end:
        if _is_completing(program):
            return _End(int(end.code or 0))  # click has answered the completion of a shell
        # click raises this when a write to a pipe fails. This pipe is neither stdout nor stderr, because _Output
        # handles these.
        closed = InfrastructureError("another program closed a pipe to which dlio-hpc was writing")
        return _complain(program, arguments, of_import(end) or closed)
    except (KeyboardInterrupt, click.Abort):
        return _complain(program, arguments, Incomplete("interrupted"))
    except Exception as fault:  # noqa: BLE001 - any failure is reported and has an exit code
        known = classified(fault)
        if isinstance(known, Unexpected) and known is not fault:
            from dlio_hpc.cli import bug_report

            known = bug_report.reported(program, arguments if program == "dlio-hpc" else arguments[1:], fault)
        return _complain(program, arguments, known)


# Settings of matplotlib that end the command if their values are wrong. Pictures need no backend and have no date.
_OF_MATPLOTLIB = ("MPLBACKEND", "SOURCE_DATE_EPOCH")


def _called(program: str, arguments: list[str]) -> object:
    import click

    from dlio_hpc.cli import given_runs, lost_values, misread_lines
    from dlio_hpc.cli.verbs import cli

    given_runs.VALUE.set(None)
    for name in _OF_MATPLOTLIB:
        os.environ.pop(name, None)
    if program != "dlio-submit":
        lost_values.refuse(program, cli, arguments)
        misread_lines.refuse(program, cli, arguments)
        return cli.main(arguments, prog_name=program, standalone_mode=False)
    command = cli.get_command(click.Context(cli), "submit")
    assert command is not None
    lost_values.refuse(program, command, arguments[1:])
    misread_lines.refuse(program, command, arguments[1:])
    return command.main(arguments[1:], prog_name=program, standalone_mode=False)


class _Output(io.FileIO):
    """An output stream whose reader may close the stream early, like head(1). Later output is dropped; the command
    continues to its end and exits with its own exit code.
    """

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            return memoryview(data).nbytes


def _open_outputs() -> None:
    """Replace sys.stdout and sys.stderr with streams that survive a closed pipe and can print file names that are not
    UTF-8. A closed stdout is replaced by /dev/null.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _pipe_safe(sys.stdout)
        sys.stdout.reconfigure(errors="backslashreplace")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _pipe_safe(sys.stderr)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open until the process ends


def _pipe_safe(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a stream that writes through _Output to the same descriptor as `stream`. If `stream` has no descriptor,
    return `stream` itself.
    """
    if not isinstance(getattr(stream.buffer, "raw", stream.buffer), io.FileIO):
        return stream
    raw = _Output(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),  # type: ignore[type-var]
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _complain(program: str, arguments: list[str], fault: "DlioError") -> _End:
    """Print the message of an error on stderr, and return the end of the command."""
    from dlio_hpc.base.errors import ConfigError, shortened
    from dlio_hpc.cli import given_runs

    message = str(fault)
    if fault.exit_code == ConfigError.exit_code and any(name.startswith("DLIO_HPC_") for name in os.environ):
        from dlio_hpc.cli import usage_faults

        message = usage_faults.with_variable(message, arguments)
    message = shortened(given_runs.completed(message))
    _record(f"{program}: {message}")
    print(f"{program}: {message}", file=sys.stderr)
    return _End(fault.exit_code, _kind(fault), message)


def _kind(fault: "DlioError") -> str:
    """Return the name of the class of dlio_hpc.base.errors to which an error belongs."""
    from dlio_hpc.base.errors import kind_of

    return kind_of(fault.exit_code).__name__


def _record(message: str) -> None:
    from dlio_hpc.base import log_file

    log_file.record("stderr", message)
