"""What dlio-hpc install-site writes is used by the programs for which it is written: groff, shells and modules."""

import os
import pty
import pwd
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

import dlio_hpc
from dlio_hpc.cli import man_page
from dlio_hpc.cli.exit_codes import EXIT_CODES
from dlio_hpc.cli.verb_groups import VERBS
from dlio_hpc.cli.verbs import cli
from dlio_hpc.config import shipped
from dlio_hpc.files import shared_python
from tests.conftest import Run, ahead, runner
from tests.support.places import ROOT

_BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")
_MODULES = Path("/usr/share/modules/init/bash")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a prefix with a blank in its name."""
    folder = tmp_path_factory.mktemp("in stalled") / "site [1]"
    done = runner(folder.parent)("dlio-hpc", "install-site", folder, "--env", 'DLIO_HPC_ACCOUNT=a "b" $c [d]')
    assert done.code == 0, done.err
    assert sorted(done.out.splitlines()) == sorted(map(str, _files(folder)))
    return folder


def _files(prefix: Path) -> list[Path]:
    return [path for path in prefix.rglob("*") if path.is_file() and path.name != "installed.sha256"]


def _needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def _shell(script: str, **environment: str) -> str:
    """Return what a script of bash prints. It starts without the variables that the module file sets."""
    unset = {"MANPATH", "XDG_DATA_DIRS", "DLIO_HPC_ACCOUNT", "LOADEDMODULES", "_LMFILES_", "MODULEPATH"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        ["bash", "-c", script], env=kept | ahead(ROOT) | environment, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def _options(command: click.Command) -> set[str]:
    inner = command.commands.values() if isinstance(command, click.Group) and command is not cli else ()
    own = {name for param in command.params if isinstance(param, click.Option) for name in param.opts}
    return own.union(*map(_options, inner))


def test_every_page_is_sound_and_names_every_option(prefix: Path) -> None:
    _needs("groff")
    pages = sorted((prefix / "share/man/man1").glob("*.1"))
    assert len(pages) == len(VERBS) + 2
    for page in pages:
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8", page], cwd=page.parents[1], capture_output=True, text=True,
            timeout=60, check=True, env={**os.environ, "GROFF_NO_SGR": "1"},
        )  # fmt: skip
        assert done.stderr == "", page
        plain = re.sub(".\b", "", done.stdout)
        name = {"dlio-hpc": None, "dlio-submit": "submit"}.get(page.stem, page.stem.removeprefix("dlio-hpc-"))
        command = cli if name is None else cli.get_command(click.Context(cli), name)
        assert command is not None
        assert [option for option in _options(command) if not re.search(rf"{option}\b", plain)] == [], page
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"):
            assert f"\n{section}\n" in plain, page
        assert not re.search("[\u2010\u2018\u2019]", plain), "characters that cannot be typed into a shell"


def test_pages_do_not_depend_on_the_users_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "defaults.yaml").write_text("runs: /somebodys/runs\n")
    monkeypatch.setenv("DLIO_HPC_SITE_PATH", str(tmp_path))
    from dlio_hpc.config import defaults

    defaults.load.cache_clear()
    assert not [page.name for page in man_page.pages() if "somebody" in page.text]
    defaults.load.cache_clear()


def test_man_lists_the_pages(prefix: Path) -> None:
    _needs("man", "lexgrog", "col")
    page = prefix / "share/man/man1/dlio-hpc-report.1"
    described = subprocess.run(["lexgrog", page], capture_output=True, text=True, check=True).stdout
    assert f"dlio-hpc-report - {VERBS['report'].summary}" in described
    assert "Measurements and I/O" in _shell("man dlio-hpc-report | col -b", MANPATH=str(prefix / "share/man"))


def test_the_commands_run_with_this_interpreter(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('the working directory was searched for modules')")
    for program in ("dlio-hpc", "dlio-submit"):
        out = _shell(f"cd '{tmp_path}' && '{prefix}/bin/{program}' --version && '{prefix}/bin/{program}' --help")
        assert out.startswith(f"{program} {dlio_hpc.__version__}\nUsage: {program}")
    link = tmp_path / "linked"
    link.symlink_to(prefix / "bin" / "dlio-hpc")
    assert _shell(f"'{link}' --version").startswith("dlio-hpc ")


def test_a_module_puts_commands_manual_and_variables_into_the_environment(prefix: Path) -> None:
    if not _MODULES.exists():
        pytest.skip("environment-modules is not installed")
    out = _shell(f"""
        exec 2>&1
        source {_MODULES}
        module use '{prefix}/share/modulefiles'
        module whatis dlio-hpc
        module help dlio-hpc
        module load dlio-hpc
        command -v dlio-submit
        echo "$DLIO_HPC_ACCOUNT;$XDG_DATA_DIRS;$MANPATH;"
        module load dlio-hpc/{dlio_hpc.__version__} && echo again
        module unload dlio-hpc
        echo "$DLIO_HPC_ACCOUNT;$MANPATH;"
        command -v dlio-submit || true
    """, PATH="/usr/bin:/bin")  # fmt: skip
    lines = out.splitlines()
    assert f"dlio-hpc {dlio_hpc.__version__}: benchmark" in out
    assert f"Examples: {prefix}/share/doc/dlio-hpc/examples" in out
    assert lines[-4:] == [
        f"{prefix}/bin/dlio-submit",
        f'a "b" $c [d];{prefix}/share:/usr/local/share:/usr/share;{prefix}/share/man:;',
        "again",
        ";;",
    ]


def _typed(shell: list[str], setup: str, keys: str, expected: str, environment: dict[str, str]) -> str:
    """Type into an interactive shell, until its terminal shows `expected` or half a minute has passed. Return what the
    terminal showed after `keys` were typed.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(shell, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        os.write(ours, f"{setup}\necho rea''dy\n".encode())
        _shown(ours, "ready")
        os.write(ours, keys.encode())
        return _shown(ours, expected)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _shown(terminal: int, expected: str) -> str:
    text, end = "", time.monotonic() + 30
    while expected not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 0.5)[0]:
            text += os.read(terminal, 4096).decode(errors="replace")
    return text


# A tabulator after these characters completes to the name of the verb, which the terminal does not show otherwise.
_KEYS, _COMPLETED = "dlio-hpc mlperf-r\t", "mlperf-report"


def _completing(prefix: Path, home: Path) -> dict[str, str]:
    return {
        "PATH": f"{prefix / 'bin'}:/usr/bin:/bin", "TERM": "dumb", "HOME": str(home), "LANG": "C.UTF-8",
        "XDG_DATA_DIRS": f"{prefix / 'share'}:/usr/local/share:/usr/share", **ahead(ROOT),
    }  # fmt: skip


def test_bash_completes_from_the_installed_file(prefix: Path, tmp_path: Path) -> None:
    if not _BASH_COMPLETION.exists():
        pytest.skip("bash-completion is not installed")
    shown = _typed(
        ["bash", "--norc", "-i"], f"source {_BASH_COMPLETION}", _KEYS, _COMPLETED, _completing(prefix, tmp_path)
    )
    assert _COMPLETED in shown


def test_zsh_completes_from_the_installed_file(prefix: Path, tmp_path: Path) -> None:
    _needs("zsh")
    setup = f"fpath=('{prefix}/share/zsh/site-functions' $fpath); autoload -Uz compinit; compinit -u -D"
    shown = _typed(["zsh", "-f", "-i"], setup, _KEYS, _COMPLETED, _completing(prefix, tmp_path))
    assert _COMPLETED in shown


def test_zsh_completes_both_commands_after_eval(prefix: Path, tmp_path: Path) -> None:
    _needs("zsh")
    setup = 'autoload -Uz compinit; compinit -u -D; eval "$(dlio-hpc completion zsh)"'
    for keys, expected in ((_KEYS, _COMPLETED), ("dlio-submit unet3d_b\t", "unet3d_b200")):
        assert expected in _typed(["zsh", "-f", "-i"], setup, keys, expected, _completing(prefix, tmp_path))


def test_fish_completes_from_the_installed_file(prefix: Path, tmp_path: Path) -> None:
    _needs("fish")
    for line, answer in (("dlio-hpc mlperf-r", _COMPLETED), ("dlio-submit demo --site the", "theta")):
        done = subprocess.run(
            ["fish", "-c", f"complete -C '{line}'"], env=_completing(prefix, tmp_path), capture_output=True, text=True,
            timeout=60, check=True,
        )  # fmt: skip
        assert done.stdout.split()[0] == answer, done


def test_examples_are_all_installed(prefix: Path) -> None:
    examples = shipped.root() / shipped.EXAMPLES
    installed = prefix / "share/doc/dlio-hpc/examples"
    names = {path.relative_to(examples) for path in examples.rglob("*") if path.is_file()}
    assert names == {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    assert all((examples / name).read_bytes() == (installed / name).read_bytes() for name in names)


def test_it_replaces_its_own_files_and_no_others(run: Run, tmp_path: Path) -> None:
    site = tmp_path / "site"
    module = site / "share/modulefiles/dlio-hpc" / dlio_hpc.__version__
    assert run("dlio-hpc", "install-site", site, "--load", "cray-mpich").code == 0
    assert 'module load "cray-mpich"' in module.read_text()
    # An earlier version left a page that this one does not have, and the module file of that version.
    for name in ("share/man/man1/dlio-hpc-old.1", "share/modulefiles/dlio-hpc/0.0.9", "share/man/man1/edited.1"):
        (site / name).write_text("")
        with (site / "share/doc/dlio-hpc/installed.sha256").open("a") as record:
            record.write(f"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  {name}\n")
    (site / "share/man/man1/edited.1").write_text("edited")
    assert run("dlio-hpc", "install-site", site).code == 0
    assert "cray-mpich" not in module.read_text()
    assert not (site / "share/man/man1/dlio-hpc-old.1").exists()
    assert (site / "share/man/man1/edited.1").exists()
    assert (module.parent / "0.0.9").exists()
    assert not list(site.rglob("*.part"))
    subprocess.run(["sha256sum", "--check", "--quiet", "share/doc/dlio-hpc/installed.sha256"], cwd=site, check=True)
    module.write_text("#%Module\nsite's own\n")
    (site / "bin/dlio-hpc").unlink()
    done = run("dlio-hpc", "install-site", site)
    assert done.code == 2
    assert f"not replaced: {module}; dlio-hpc did not write this content" in done.err
    assert not (site / "bin/dlio-hpc").exists(), "nothing is written"
    assert run("dlio-hpc", "install-site", site, "--force").code == 0
    assert "site's own" not in module.read_text()


def test_files_are_for_everybody_whatever_the_umask(run: Run, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert run("dlio-hpc", "install-site", tmp_path / "site").code == 0
        assert os.umask(0o077) == 0o077, "the umask is restored"
    finally:
        os.umask(before)
    for path in (tmp_path / "site").rglob("*"):
        is_program = path.is_dir() or path.parent.name == "bin"
        assert path.stat().st_mode & 0o777 == (0o755 if is_program else 0o644), path


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["file/below"], 2, "cannot write {}/file/below/bin/dlio-hpc: Not a directory"),
    (["/proc/nowhere"], 6, "cannot write /proc/nowhere/bin/dlio-hpc: No such file or directory"),
    (["s3://bucket"], 2, "s3://bucket"),
    (["site", "--env", "HOME"], 2, "expected NAME=VALUE, such as DLIO_HPC_SITE=mycluster, not 'HOME'"),
    (["site", "--env", "A B=1"], 2, "instead of A B in 'A B=1'"),
    ([], 2, "Missing argument 'PREFIX'"),
])  # fmt: skip
def test_what_cannot_be_installed_is_refused(
    run: Run, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    (tmp_path / "file").write_text("")
    done = run("dlio-hpc", "install-site", *arguments)
    assert (done.code, done.out) == (code, "")
    assert message.format(tmp_path) in done.err
    assert not (tmp_path / "site").exists()


def test_the_page_of_exit_codes_has_those_of_the_commands() -> None:
    rows = re.findall(r"^\| (\d+) \|", (ROOT / "docs/reference/exit-codes.md").read_text(), re.MULTILINE)
    assert list(map(int, rows)) == list(EXIT_CODES)
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) in readme


@pytest.fixture
def public() -> Iterator[Path]:
    """Return a folder that all users can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="dlio-hpc-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _private(public: Path, python: str) -> Path:
    """Return a link to an interpreter in a folder that only its owner may enter."""
    private = public / "private"
    private.mkdir(mode=0o700)
    (private / "python3").symlink_to(python)
    return private / "python3"


_SYSTEM_PYTHON = "/usr/bin/python3"
_CHECK = Path(shared_python.__file__)


def test_an_installation_from_a_private_python_is_refused(public: Path) -> None:
    _needs("make")
    python = _private(public, _SYSTEM_PYTHON if Path(_SYSTEM_PYTHON).exists() else sys.executable)
    place = public / "software"
    done = subprocess.run(
        ["make", "install", f"PYTHON={python}", f"PREFIX={place}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"Other users cannot use {python}" in done.stderr
    assert f"{python.parent} (drwx------) is closed to them" in done.stderr
    assert "add PYTHON=/usr/bin/python3 to the command" in done.stderr
    assert not place.exists()
    if os.getuid() == 0 and shutil.which("setpriv"):
        other = ["setpriv", "--reuid", "61001", "--regid", "61001", "--clear-groups"]
        tried = subprocess.run([*other, "/bin/sh", "-c", f"{python} -c 0"], cwd="/", capture_output=True, check=False)
        assert tried.returncode == 126
        assert b"Permission denied" in tried.stderr


def test_an_interpreter_that_all_users_can_use_is_accepted(public: Path) -> None:
    if not Path(_SYSTEM_PYTHON).exists():
        pytest.skip(f"there is no {_SYSTEM_PYTHON}")
    _check(_SYSTEM_PYTHON, public / "software")
    if os.getuid() == 0 and shutil.which("setpriv"):
        other = ["setpriv", "--reuid", "61001", "--regid", "61001", "--clear-groups"]
        subprocess.run([*other, _SYSTEM_PYTHON, "-c", "import json"], cwd="/", check=True)


def test_an_installation_for_its_owner_alone_may_use_a_private_python(public: Path) -> None:
    python = _private(public, sys.executable)
    _check(python, public / "private" / "software")


def _check(python: str | Path, prefix: Path) -> None:
    done = subprocess.run([python, "-I", _CHECK, prefix], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_folders_of_a_group_of_users_are_open(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = public / "software"
    folder.mkdir(mode=0o750)
    own = SimpleNamespace(pw_gid=folder.stat().st_gid)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: own)
    assert shared_python._is_closed(folder), "the group of the owner"
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_gid=own.pw_gid + 1))
    assert not shared_python._is_closed(folder)
    folder.chmod(0o700)
    assert shared_python._is_closed(folder)
