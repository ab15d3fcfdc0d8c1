"""dlio-hpc install-site: write, to a prefix, the files with which a site offers dlio-hpc to its users."""

import hashlib
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import click

from dlio_hpc import __version__
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.cli import completion, console, man_page, usage_faults
from dlio_hpc.cli.completion import PROGRAMS
from dlio_hpc.cli.outputs import written
from dlio_hpc.cli.verbs import FOLDER, JSON, SETTINGS, argument, parsed
from dlio_hpc.documents.files import InstalledDocument

# Folders and files below the prefix.
_MODULES = "share/modulefiles"
_EXAMPLES = "share/doc/dlio-hpc/examples"
_COMPLETIONS = {
    "bash": "share/bash-completion/completions/{}",
    "zsh": "share/zsh/site-functions/_{}",
    "fish": "share/fish/vendor_completions.d/{}.fish",
}
# The list of what was written, in the format of sha256sum(1).
_RECORD = "share/doc/dlio-hpc/installed.sha256"
_ENTRY_POINTS = {"dlio-hpc": "main", "dlio-submit": "submit_main"}


class SiteFile(NamedTuple):
    """A file to write. path: its path relative to the prefix."""

    path: str
    text: str
    is_program: bool = False


class ModuleSettings(NamedTuple):
    """Content of the module file in addition to paths. variables: environment variables that the file sets. loads:
    modules that the file loads first.
    """

    variables: tuple[tuple[str, str], ...]
    loads: tuple[str, ...]


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if equals and name != name.strip():
        raise ValueError(f"found {text!r}; write no blanks around '=': {name.strip()}={value.strip()}")
    if equals and not re.fullmatch(r"[A-Za-z_]\w*", name):
        allowed = re.sub(r"\W", "_", name)
        raise ValueError(
            f"{name!r} is not a valid name of a variable; use letters, digits and '_', such as {allowed} instead of "
            f"{name} in {text!r}"
        )
    if not equals:
        raise ValueError(f"expected NAME=VALUE, such as DLIO_HPC_SITE=mycluster, not {text!r}")
    return name, value


def _variables(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[tuple[str, str], ...]:
    one = parsed(_variable)
    pairs = tuple(pair for value in values if (pair := one(ctx, param, value)) is not None)
    for fault in usage_faults.unknown_variables(ctx, [name for name, _ in pairs]):
        raise click.BadParameter(fault, ctx, param)
    return pairs


def _modules(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    for value in values:
        if names := value.split() if len(value.split()) > 1 else []:
            several = " ".join(f"--load {name}" for name in names)
            raise click.BadParameter(f"found {value!r}; give one module with each --load: {several}", ctx, param)
    return tuple(values)


@click.command(name="install-site", context_settings=SETTINGS)
@argument("prefix", type=FOLDER)
@click.option(
    "--env", "variables", metavar="NAME=VALUE", multiple=True, callback=_variables,
    help="Variable that the module file sets, such as DLIO_HPC_SITE=mycluster; repeatable.",
)  # fmt: skip
@click.option(
    "--load",
    "loads",
    metavar="MODULE",
    multiple=True,
    callback=_modules,
    help="Module that the module file loads first; repeatable.",
)
@click.option("--force", is_flag=True, help="Also replace files that were written or changed by others.")
@JSON
def install_site(
    prefix: Path, variables: tuple[tuple[str, str], ...], loads: tuple[str, ...], force: bool, as_json: bool
) -> None:
    """Write the files that a site offers its users below PREFIX: the commands in bin, man pages, completion for bash,
    zsh and fish, a module file for Environment Modules and Lmod, and examples for CI systems, timers, containers and
    monitoring.

    All these files use the Python environment that runs this command. If the environment is moved, run the command
    again with its interpreter: NEWPLACE/bin/python -m dlio_hpc install-site PREFIX. Files that the command wrote before
    are replaced. Files that others wrote or changed are refused without --force.
    """
    try:
        place = Path(os.path.abspath(prefix.expanduser()))
    except RuntimeError as fault:
        raise ConfigError(f"{prefix}: {fault}; give the whole path") from fault
    files = list(_files(place, ModuleSettings(variables, loads)))
    with _common_permissions():
        paths = list(map(str, _install(place, files, force)))
    if as_json:
        console.print_json(InstalledDocument(str(place), paths))
    for path in () if as_json else paths:
        console.show(path)
    console.say(f"to use it: module use {shlex.quote(str(place / _MODULES))} && module load dlio-hpc")


@contextmanager
def _common_permissions() -> Iterator[None]:
    """Make files that are written in the `with` block readable for other users, regardless of the umask."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _files(prefix: Path, module: ModuleSettings) -> Iterator[SiteFile]:
    """Yield all files to write."""
    from dlio_hpc.config import shipped

    for program in PROGRAMS:
        yield SiteFile(f"bin/{program}", _launcher(prefix, program), is_program=True)
    for page in man_page.pages():
        yield SiteFile(f"share/man/man1/{page.name}", page.text)
    for shell, path in _COMPLETIONS.items():
        for program in PROGRAMS:
            yield SiteFile(path.format(program), completion.script(shell, [program]))
    yield SiteFile(f"{_MODULES}/dlio-hpc/{__version__}", _module_file(prefix, module))
    examples = shipped.root() / shipped.EXAMPLES
    for source in sorted(source for source in examples.rglob("*") if source.is_file()):
        if source.parent.name == "__pycache__":  # pip compiles the packages of Spack, too
            continue
        yield SiteFile(f"{_EXAMPLES}/{source.relative_to(examples)}", source.read_text(encoding="utf-8"))


# The first two lines are shell and Python: sh(1) executes the interpreter, and for Python they are a text. In contrast
# to python -m, the working directory is not searched for modules.
_LAUNCHER = """\
#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
# Written by dlio-hpc install-site.
import sys
{path}
from dlio_hpc.cli.command_line import {function}

sys.exit({function}())
"""


def _launcher(prefix: Path, program: str) -> str:
    """Return a script that runs a program with the interpreter of this process. If the interpreter is in the folder of
    the script, the script finds it there, even after both were moved.
    """
    from dlio_hpc.batch import jobscript

    python = Path(sys.executable)
    is_beside = os.path.realpath(python.parent) == os.path.realpath(prefix / "bin")
    relative = f'"$(dirname -- "$(readlink -f -- "$0")")"/{shlex.quote(python.name)}'
    home = jobscript.python_path()
    path = "" if home is None else f"\nsys.path.append({home!r})\n"
    return _LAUNCHER.format(
        python=relative if is_beside else shlex.quote(str(python)), path=path, function=_ENTRY_POINTS[program]
    )


_MODULE_FILE = """\
#%Module1.0
# Written by dlio-hpc install-site, for Environment Modules and Lmod.

proc ModulesHelp {{ }} {{
    puts stderr "dlio-hpc measures how a storage system serves deep learning, as jobs of the batch system."
    puts stderr {manual}
}}

module-whatis "dlio-hpc {version}: benchmark of storage for deep learning"
conflict dlio-hpc
{loads}
prepend-path PATH {programs}
# The empty entry stands for the manuals of the system.
prepend-path MANPATH {manuals}
append-path MANPATH {{}}
# Completion of bash and fish. If the variable is not set, these two folders are its default.
if {{ ![info exists env(XDG_DATA_DIRS)] }} {{
    append-path XDG_DATA_DIRS /usr/local/share
    append-path XDG_DATA_DIRS /usr/share
}}
prepend-path XDG_DATA_DIRS {data}
{variables}"""


def _module_file(prefix: Path, module: ModuleSettings) -> str:
    manual = f"Manual: man dlio-hpc, dlio-submit --help. Examples: {prefix / _EXAMPLES}"
    return _MODULE_FILE.format(
        version=__version__, manual=_tcl(manual), programs=_tcl(prefix / "bin"), manuals=_tcl(prefix / "share/man"),
        data=_tcl(prefix / "share"),
        loads="".join(f"module load {_tcl(name)}\n" for name in module.loads),
        variables="".join(f"setenv {name} {_tcl(value)}\n" for name, value in module.variables),
    )  # fmt: skip


def _tcl(value: object) -> str:
    """Return a text as a word of Tcl."""
    return '"' + re.sub(r'([\\"$\[\]{}])', r"\\\1", str(value)) + '"'


def _install(prefix: Path, files: Sequence[SiteFile], force: bool) -> Iterator[Path]:
    """Write the files, and yield the path of each. Remove files that an earlier version wrote and this version does not
    write, except for module files of other versions. If this would replace a file that the command did not write, raise
    ConfigError before anything is written.
    """
    from dlio_hpc.files import atomic_file

    recorded = _recorded(prefix / _RECORD)
    foreign = [prefix / file.path for file in files if _is_foreign(prefix, file, recorded)]
    if foreign and not force:
        names = ", ".join(map(str, foreign[:3])) + (f" and {len(foreign) - 3} more" if foreign[3:] else "")
        raise ConfigError(
            f"not replaced: {names}; dlio-hpc did not write this content. Move it away, or replace it with --force"
        )
    for file in files:
        path = prefix / file.path
        with written(path):
            atomic_file.write(path, file.text, 0o755 if file.is_program else 0o644)
        yield path
    digests = {file.path: _digest_of(file) for file in files}
    for name, digest in recorded.items():
        if name.startswith(f"{_MODULES}/"):
            digests.setdefault(name, digest)
        elif name not in digests and _digest(prefix / name) == digest:
            (prefix / name).unlink()
    lines = (f"{digest}  {name}\n" for name, digest in digests.items())
    with written(prefix / _RECORD):
        atomic_file.write(prefix / _RECORD, "".join(lines), 0o644)


def _recorded(record: Path) -> dict[str, str]:
    """Return the digests that an earlier install-site recorded, as a mapping from path (relative to the prefix) to
    digest.
    """
    try:
        lines = record.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    return {path: digest for digest, _, path in (line.partition("  ") for line in lines)}


def _is_foreign(prefix: Path, file: SiteFile, recorded: dict[str, str]) -> bool:
    """Return whether there is something at the path of a file that this command did not write. Entry points that pip
    wrote for dlio-hpc may be replaced.
    """
    path = prefix / file.path
    if not os.path.lexists(path):
        return False
    digest = _digest(path)
    if digest is None:
        return True
    is_ours = digest in (recorded.get(file.path), _digest_of(file))
    is_of_pip = file.path not in recorded and file.is_program and b"from dlio_hpc.cli" in path.read_bytes()
    return not is_ours and not is_of_pip


def _digest_of(file: SiteFile) -> str:
    return hashlib.sha256(file.text.encode()).hexdigest()


def _digest(path: Path) -> str | None:
    """Return the SHA-256 of a file, or None if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
