"""The files for JUBE, Ramble and buildtest run a job, and their patterns match what it prints. The tools themselves run
where they are on PATH.
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import yaml

from dlio_hpc.config import shipped
from tests.conftest import BIN

_SHARE = shipped.root() / "share"
_RATES = {"samples_per_s", "read_MBps", "au", "from_storage"}


class Definition(NamedTuple):
    """What a file asks its tool to do: commands of the shell, and patterns for lines of `output`, by metric."""

    commands: list[str]
    patterns: dict[str, str]
    output: str | None = None


def _jube(folder: Path, work: Path) -> Definition:
    text = yaml.safe_load((_SHARE / "jube" / "dlio_hpc.yaml").read_text())
    values = {one["name"]: str(one["_"]).partition(",")[0] for one in text["parameterset"]["parameter"]}
    values |= {"workload": str(work), "data": str(folder / "data")}
    # The patterns of its manual.
    known = {
        "jube_pat_fp": r"([+-]?\d*\.?\d+(?:[eE][-+]?\d+)?)",
        "jube_pat_int": r"([+-]?\d+)",
        "jube_pat_wrd": r"(\S+)",
    }

    def filled(line: str, by: dict[str, str]) -> str:
        return re.sub(r"\$(\w+)", lambda match: by[match[1]], line)

    patterns = {one["name"]: filled(one["_"], known) for one in text["patternset"]["pattern"]}
    assert set(text["result"]["table"]["column"]) - values.keys() == patterns.keys()
    return Definition(
        [filled(line, values) for line in text["step"]["do"]], patterns, text["analyser"]["analyse"]["file"]
    )


def _buildtest(folder: Path, work: Path) -> Definition:
    (test,) = yaml.safe_load((_SHARE / "buildtest" / "dlio_hpc.yml").read_text())["buildspecs"].values()
    values = test["vars"] | {"WORKLOAD": str(work)}
    settings = "".join(f'{name}="{value}"\n' for name, value in values.items())
    patterns = {name: metric["regex"]["exp"] for name, metric in test["metrics"].items()}
    assert test["status"]["regex"]["exp"] == "From Storage: yes"
    return Definition([settings + test["run"]], patterns)


def _ramble(folder: Path, work: Path) -> Definition:
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
    appkit = ModuleType("ramble.appkit")
    for name in ("tags", "executable", "workload", "workload_variable", "figure_of_merit", "success_criteria"):
        setattr(appkit, name, lambda *rest, called=name, **keys: calls.append((called, rest, keys)))
    appkit.ExecutableApplication = object  # type: ignore[attr-defined]
    sys.modules |= {"ramble": ModuleType("ramble"), "ramble.appkit": appkit}
    try:
        runpy.run_path(str(_SHARE / "ramble" / "applications" / "dlio-hpc" / "application.py"))
    finally:
        del sys.modules["ramble"], sys.modules["ramble.appkit"]
    workspace = yaml.safe_load((_SHARE / "ramble" / "ramble.yaml").read_text())["ramble"]
    (experiment,) = workspace["applications"]["dlio-hpc"]["workloads"]["job"]["experiments"].values()
    values = {rest[0]: keys["default"] for called, rest, keys in calls if called == "workload_variable"}
    values |= {**experiment["variables"], "processes_per_node": 1, "dlio_workload": str(work)}
    values["dlio_data"] = values["dlio_data"].format(experiment_run_dir=folder)
    commands = [
        rest[1].format(experiment_run_dir=folder, **values) for called, rest, _ in calls if called == "executable"
    ]
    names = {"Samples/s": "samples_per_s", "Read bandwidth": "read_MBps", "AU": "au", "From Storage": "from_storage"}
    patterns = {
        names.get(rest[0], rest[0]): f"^{keys['fom_regex']}"
        for called, rest, keys in calls
        if called == "figure_of_merit"
    }
    (criterion,) = (keys["match"] for called, _, keys in calls if called == "success_criteria")
    return Definition(commands, {**patterns, "completed": f"^({criterion})"})


@pytest.mark.job
@pytest.mark.parametrize("tool", [_jube, _ramble, _buildtest])
def test_a_file_runs_a_job_and_reads_its_metrics(tool: Any, tmp_path: Path, small: Path) -> None:
    definition = tool(tmp_path, small)
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    printed = ""
    for command in definition.commands:
        done = subprocess.run(
            command, shell=True, executable="bash", cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed += done.stdout
    if definition.output is not None:
        printed = (tmp_path / definition.output).read_text()
    values = {}
    for name, pattern in definition.patterns.items():
        match = re.search(pattern, printed, re.MULTILINE)
        assert match is not None, f"{name}: {pattern} in\n{printed}"
        values[name] = match[1]
    assert values.keys() >= _RATES
    assert float(values["samples_per_s"]) > 0
    assert 0 < float(values["au"]) <= 1
    assert values["from_storage"] in {"yes", "no", "unknown"}


def _on_path(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"need {program} on PATH")
    return path


def _call(tmp_path: Path, *command: object) -> str:
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [str(part) for part in command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.job
def test_jube_runs_the_shipped_benchmark(tmp_path: Path) -> None:
    jube = _on_path("jube")
    _call(tmp_path, jube, "run", _SHARE / "jube" / "dlio_hpc.yaml", "--outpath", "out", "--hide-animation")
    table = _call(tmp_path, jube, "result", "out", "--analyse")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "demo" in line]
    assert [row[3] for row in rows] == ["1", "2", "4"]
    assert all(float(row[4]) > 0 and row[-1] == "0" for row in rows), table


@pytest.mark.job
def test_ramble_runs_the_shipped_application(tmp_path: Path) -> None:
    ramble = _on_path("ramble")
    _call(tmp_path, ramble, "repo", "add", "-t", "applications", _SHARE / "ramble")
    _call(tmp_path, ramble, "workspace", "create", "-d", "space", "-c", _SHARE / "ramble" / "ramble.yaml")
    for verb in (("workspace", "setup"), ("on",), ("workspace", "analyze", "-f", "json")):
        _call(tmp_path, ramble, "-D", "space", *verb)
    experiments = json.loads((tmp_path / "space" / "results.latest.json").read_text())["experiments"]
    assert [one["RAMBLE_STATUS"] for one in experiments] == ["SUCCESS"] * 3
    for one in experiments:
        figures = {figure["name"]: figure["value"] for context in one["CONTEXTS"] for figure in context["foms"]}
        assert float(figures["Samples/s"]) > 0


@pytest.mark.job
def test_buildtest_runs_the_shipped_test(tmp_path: Path) -> None:
    buildtest = _on_path("buildtest")
    out = _call(tmp_path, buildtest, "build", "--buildspec", _SHARE / "buildtest" / "dlio_hpc.yml")
    assert "Passed Tests: 1/1" in out or "Failed Tests: 1/1" in out, out  # the file system may have no direct I/O
    assert "samples_per_s" in _call(tmp_path, buildtest, "inspect", "query", "dlio_hpc_demo")
