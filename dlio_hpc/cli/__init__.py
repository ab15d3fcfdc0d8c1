"""The command line. Only this folder prints and exits."""

import gc
import io
import os
import sys

from dlio_hpc import __version__


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
    code = exit_code(program, arguments)
    gc.freeze()
    sys.exit(code)


def exit_code(program: str, arguments: list[str]) -> int:
    """Run the command and return its exit code. If the command fails, report the failure in one line on stderr."""
    import click

    from dlio_hpc.errors import Incomplete, InfrastructureError, Unexpected, classified

    try:
        code = _called(program, arguments)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as fault:
        from dlio_hpc.cli import usage_faults

        usage_faults.improved(fault).show()
        return fault.exit_code
    except SystemExit as end:
        if os.environ.get(f"_{program.replace('-', '_').upper()}_COMPLETE"):
            return int(end.code or 0)  # click has answered the completion of a shell
        # click raises this when a write to a pipe fails. This pipe is neither stdout nor stderr, because _Output
        # handles these.
        _complain(program, "a pipe to another program was closed at its other end")
        return InfrastructureError.exit_code
    except (KeyboardInterrupt, click.Abort):
        _complain(program, "interrupted")
        return Incomplete.exit_code
    except Exception as fault:  # noqa: BLE001 - any failure is reported and has an exit code
        known = classified(fault)
        if isinstance(known, Unexpected) and known is not fault:
            from dlio_hpc.cli import bug_report

            known = bug_report.reported(program, arguments if program == "dlio-hpc" else arguments[1:], fault)
        _complain(program, str(known))
        return known.exit_code


def _called(program: str, arguments: list[str]) -> object:
    import click

    from dlio_hpc.cli.verbs import cli

    if program != "dlio-submit":
        return cli.main(arguments, prog_name=program, standalone_mode=False)
    command = cli.get_command(click.Context(cli), "submit")
    assert command is not None
    return command.main(arguments[1:], prog_name=program, standalone_mode=False)


class _Output(io.FileIO):
    """An output stream whose reader may close the stream early, as head(1) does. Later output is then dropped. The
    command continues to its end and exits with its own exit code.
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


def _complain(program: str, message: str) -> None:
    from dlio_hpc.errors import shortened

    print(f"{program}: {shortened(message)}", file=sys.stderr)
