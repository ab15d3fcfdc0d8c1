"""The commands: the only place that prints and exits."""

import gc
import io
import os
import sys

from dlio_hpc import __version__


def main() -> None:
    """dlio-hpc."""
    _run("dlio-hpc", sys.argv[1:])


def submit_main() -> None:
    """dlio-submit, which is dlio-hpc submit."""
    _run("dlio-submit", ["submit", *sys.argv[1:]])


def _run(program: str, arguments: list[str]) -> None:
    if arguments in (["--version"], ["submit", "--version"]):
        print(f"{program} {__version__}")  # before click is imported: login nodes ask for it often
        return

    gc.disable()  # what start-up allocates stays to the end; looking through it costs a tenth of a short command
    import click

    from dlio_hpc.cli.verbs import cli
    from dlio_hpc.errors import DlioError, Incomplete

    _open_stdout()
    code: object = 0
    try:
        if program == "dlio-submit":
            command = cli.get_command(click.Context(cli), "submit")
            assert command is not None
            code = command.main(arguments[1:], prog_name=program, standalone_mode=False)
        else:
            code = cli.main(arguments, prog_name=program, standalone_mode=False)
        sys.stdout.flush()
    except SystemExit:
        code = 0  # click's answer to a closed pipe: the reader of our output has seen enough
    except click.ClickException as fault:
        fault.show()
        code = fault.exit_code
    except DlioError as fault:
        _complain(program, str(fault))
        code = fault.exit_code
    except (KeyboardInterrupt, click.Abort):
        _complain(program, "interrupted")
        code = Incomplete.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output has seen enough
    except OSError as fault:
        _complain(program, str(fault))
        code = DlioError.exit_code
    gc.freeze()
    sys.exit(code if isinstance(code, int) else 0)


def _open_stdout() -> None:
    """As nobody closed it, and whatever names files have that are no text."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _complain(program: str, message: str) -> None:
    print(f"{program}: {message}", file=sys.stderr)
