"""Shells complete commands, names, jobs and keys: bash, zsh and fish themselves."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dlio_hpc.cli.completion import PROGRAMS, SHELLS, script
from tests.conftest import BIN, Run
from tests.support import studies

# Lines to complete, and words that must be among the answers.
_LINES = [
    ("dlio-hpc comp", ["compare", "completion"]),
    ("dlio-submit unet3d_b", ["unet3d_b200"]),
    ("dlio-submit demo --site the", ["theta"]),
    ("dlio-submit demo -s slu", ["slurm"]),
    ("dlio-submit --study fig1", ["fig10", "fig15"]),
    ("dlio-submit --suite night", ["nightly"]),
    (
        "dlio-hpc accept x --criteria mlperf_storage_v",
        ["mlperf_storage_v2", "mlperf_storage_v3", "mlperf_storage_v3_kv_cache"],
    ),
    ("dlio-hpc workloads llama3_7", ["llama3_70b"]),
    ("dlio-hpc sites pola", ["polaris"]),
    ("dlio-hpc report tun", ["tune"]),
    ("dlio-submit demo --gen", ["--generate"]),
]


def _answers(program: str, line: str, folder: Path) -> list[str]:
    """Return what the command answers to bash about the last word of a line."""
    words = line.split(" ")
    environment = {
        **os.environ, f"_{program.replace('-', '_').upper()}_COMPLETE": "bash_complete", "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }  # fmt: skip
    done = subprocess.run(
        [BIN / program], env=environment, cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return [answer.partition(",")[2] for answer in done.stdout.splitlines() if answer]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    studies.write(studies.make(tmp_path / "dlio-runs", studies.asked()), lambda *_: 1.0)
    return tmp_path


@pytest.mark.parametrize(("line", "expected"), _LINES)
def test_answers_hold_names(line: str, expected: list[str], folder: Path) -> None:
    assert set(expected) <= set(_answers(line.split(maxsplit=1)[0], line, folder))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dlio-submit demo -S reader.m", ["reader.mode=", "reader.multiprocessing_context="]),
        ("dlio-submit demo -S reader.mode=", ["reader.mode=posix", "reader.mode=framework"]),
        ("dlio-submit demo -S reader.drop_cache=t", ["reader.drop_cache=true"]),
        ("dlio-submit demo -P reader.loader=native,p", ["reader.loader=native,pytorch"]),
        ("dlio-submit demo -S site.layout.", ["site.layout.stripe_count="]),
        ("dlio-submit demo -S checkpoint.mode=torch_", ["checkpoint.mode=torch_distributed"]),
        ("dlio-submit demo -S no.such.key=", []),
    ],
)
def test_answers_hold_keys_and_values(line: str, expected: list[str], folder: Path) -> None:
    answers = _answers("dlio-submit", line, folder)
    assert set(expected) <= set(answers)
    assert all(answer.startswith(line.rsplit(maxsplit=1)[-1].partition("=")[0]) for answer in answers)


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("dlio-submit -s the", "theta"),
        ("dlio-submit -S reader.mode=pos", "posix"),
        ("dlio-submit -S reader.queue_d", "reader.queue_depth="),
        ("dlio-hpc mlperf-r", "mlperf-report"),
    ],
)
@pytest.mark.parametrize("library", [True, False])
def test_bash_itself(line: str, reply: str, library: bool, folder: Path) -> None:
    """The words of a line are split as readline splits them."""
    path = "/usr/share/bash-completion/bash_completion"
    if library and not os.path.exists(path):
        pytest.skip("bash-completion is not installed")
    if not library and "=" in line:
        pytest.skip("words with = need bash-completion")
    split = line.replace("=", " = ").split(" ")
    program = f"""
        {f"source {path}" if library else ""}
        source comp.bash
        compopt() {{ :; }}
        COMP_WORDS=({" ".join(f"'{word}'" for word in split)})
        COMP_CWORD={len(split) - 1} COMP_LINE='{line}' COMP_POINT={len(line)}
        _dlio_hpc_complete {split[0]}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    (folder / "comp.bash").write_text(script("bash"))
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout.split(), done.stderr) == ([reply], "")


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_are_sound_and_name_both_programs(shell: str, run: Run, tmp_path: Path) -> None:
    text = run("dlio-hpc", "completion", shell).out
    assert all(program in text for program in PROGRAMS)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(text)
    subprocess.run([shell, "-n", tmp_path / "script"], check=True, timeout=60)


def test_fish_itself(folder: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    (folder / "comp.fish").write_text(script("fish"))
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder)}
    program = "source comp.fish; complete -C 'dlio-submit --site the'"
    done = subprocess.run(
        ["fish", "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "theta" in done.stdout.split()
