"""The examples for a site are valid for the programs that read them, and use commands and gauges that exist."""

import ast
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import dlio_hpc
from dlio_hpc.cli.exit_codes import EXIT_CODES
from dlio_hpc.cli.verbs import cli
from dlio_hpc.config import shipped
from dlio_hpc.reports import monitoring
from dlio_hpc.results.metrics import METRICS
from tests.conftest import BIN
from tests.support.places import ROOT

_EXAMPLES = shipped.root() / shipped.EXAMPLES
_FILES = sorted(path for path in _EXAMPLES.rglob("*") if path.is_file())
_COMMAND = re.compile(r"(?:/| - )(dlio-hpc|dlio-submit) ([^=;>|&'\n][^;>|&'\n]*)")


def _text(name: str) -> str:
    return (_EXAMPLES / name).read_text()


def _program(name: str) -> str:
    """Return the path of a program that tests install or that the machine has."""
    path = shutil.which(name, path=str(BIN)) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def _checked(*command: object, cwd: Path = _EXAMPLES) -> str:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_each_is_listed_with_what_it_is_for() -> None:
    rows = [line.split("|")[1] for line in _text("README.md").splitlines() if line.startswith("| `")]
    listed = re.findall(r"`([^`]+)`", "".join(rows))
    assert all((_EXAMPLES / name).exists() for name in listed)
    names = {path.relative_to(_EXAMPLES).as_posix() for path in _FILES} - {"README.md"}
    assert not [name for name in names if not name.startswith(tuple(listed))]


def _commands(path: Path) -> list[list[str]]:
    """Return the commands of dlio-hpc in a file, without its comments."""
    text = re.sub(r"^\s*(#|//).*", "", path.read_text(), flags=re.MULTILINE)
    return [[match[1], *shlex.split(match[2])] for match in _COMMAND.finditer(text)]


def test_commands_exist_with_their_options() -> None:
    names = ("crontab", "gitlab-ci.yml", "Jenkinsfile", "systemd/dlio-hpc-nightly.service", "conda/recipe.yaml")
    for name in names:
        commands = _commands(_EXAMPLES / name)
        assert "dlio-submit" in {program for program, *_ in commands}, name
        for program, *arguments in commands:
            verb = "submit" if program == "dlio-submit" else arguments.pop(0)
            command = cli.get_command(click.Context(cli), verb)
            assert command is not None, (name, verb)
            command.make_context(verb, arguments)


def test_gitlab() -> None:
    pipeline = yaml.safe_load(_text("gitlab-ci.yml"))
    (job,) = (job for name, job in pipeline.items() if name != "stages")
    assert set(job["allow_failure"]["exit_codes"]) < set(EXIT_CODES)
    report = job["artifacts"]["reports"]["junit"]
    assert job["artifacts"]["when"] == "always"
    assert any(f"--junit {report}" in line for line in job["script"])
    for script in ("script", "after_script"):
        _checked("bash", "-n", "-c", "\n".join(job[script]))
    _checked(_program("check-jsonschema"), "--builtin-schema", "vendor.gitlab-ci", "gitlab-ci.yml")


def test_jenkins() -> None:
    text = _text("Jenkinsfile")
    assert "--junit night.xml" in text
    assert "junit 'night.xml'" in text
    plain = re.sub(r"//.*|'[^']*'|\"[^\"]*\"", "", text)
    assert all(plain.count(begin) == plain.count(end) for begin, end in ("{}", "()", "[]"))


@pytest.mark.parametrize("path", [path for path in _FILES if path.parent.name == "systemd"], ids=lambda path: path.name)
def test_systemd(path: Path, tmp_path: Path) -> None:
    program = _program("systemd-analyze")
    for unit in path.parent.iterdir():
        text = unit.read_text().replace("/sw/dlio-hpc/bin", str(BIN)).replace("User=storage", "User=root")
        (tmp_path / unit.name).write_text(text)
    assert _checked(program, "verify", "--man=no", f"./{path.name}", cwd=tmp_path) == ""


def test_cron() -> None:
    lines = [line for line in _text("crontab").splitlines() if not line.startswith("#")]
    settings, (job,) = lines[:-1], lines[-1:]
    assert all(re.fullmatch(r"[A-Z_]+=\S+", line) for line in settings)
    assert re.match(r"30 2 \* \* \*  \S", job)
    assert "%" not in job, "cron takes it for the end of a line"
    assert len(job) < 998
    _checked("bash", "-n", "-c", job.split("  ", 1)[1])


def test_docker() -> None:
    text = _text("Dockerfile")
    instructions = re.findall(r"^([A-Z]+) ", text, re.MULTILINE)
    assert instructions[0] == "FROM"
    assert instructions.count("FROM") == 2
    for script in re.findall(r"^RUN (.*(?:\\\n.*)*)", text, re.MULTILINE):
        _checked("sh", "-n", "-c", script)
    _checked(_program("hadolint"), "Dockerfile")


def test_apptainer() -> None:
    head, *sections = re.split(r"^%(\w+)$", _text("apptainer.def"), flags=re.MULTILINE)
    assert dict(re.findall(r"^(\w+): (.+)$", head, re.MULTILINE)).keys() == {"Bootstrap", "From"}
    bodies = dict(zip(sections[::2], sections[1::2], strict=True))
    assert bodies.keys() <= {"files", "post", "environment", "runscript", "test", "labels", "help"}
    for name in ("post", "environment", "runscript", "test"):
        _checked("sh", "-n", "-c", bodies[name])


def _requirements() -> dict[str, str]:
    """Return the packages that dlio-hpc needs, each with its least version."""
    section = (ROOT / "setup.cfg").read_text().partition("install_requires =\n")[2].partition("\n\n")[0]
    return dict(line.strip().split(">=") for line in section.splitlines())


_PACKAGES = [path for path in _FILES if path.name == "package.py"]


@pytest.mark.parametrize("path", _PACKAGES, ids=lambda path: path.parent.name)
def test_spack(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert [node.module for node in imports] == ["spack_repo.builtin.build_systems.python", "spack.package"]
    (package,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    assert package.name == "".join(word.capitalize() for word in path.parent.name.split("_")), "Spack derives it so"
    calls = [node for node in ast.walk(package) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    directives = [(str(ast.unparse(call.func)), [ast.literal_eval(value) for value in call.args]) for call in calls]
    assert {name for name, _ in directives} <= {"depends_on", "version", "variant", "license"}
    if path.parent.name == "py_dlio_hpc":
        needed = {values[0].split("@")[0]: values[0] for name, values in directives if name == "depends_on"}
        for name, least in _requirements().items():
            assert needed[f"py-{name}"] == f"py-{name}@{least}:"


def test_conda() -> None:
    recipe = yaml.safe_load(_text("conda/recipe.yaml"))
    assert recipe["context"]["version"] == dlio_hpc.__version__
    assert (_EXAMPLES / "conda" / recipe["source"]["path"]).resolve() == ROOT
    needed = dict(line.split(" >=") for line in recipe["requirements"]["run"])
    assert {name: needed[name] for name in _requirements()} == _requirements()
    points = (ROOT / "setup.cfg").read_text().partition("console_scripts =\n")[2].partition("\n\n")[0]
    assert recipe["build"]["python"]["entry_points"] == [line.strip() for line in points.splitlines()]


_GAUGES = {f"dlio_hpc_{monitoring.gauge(name).name}" for name in METRICS} | {
    f"dlio_hpc_{gauge.name}" for gauge in vars(monitoring).values() if isinstance(gauge, monitoring.Gauge)
}
_LABELS = {"site", "workload", "point", "nodes", "ranks_per_node"}


def _assert_exists(expression: str) -> None:
    named = set(re.findall(r"dlio_hpc_\w+", expression))
    assert named, expression
    assert not named - _GAUGES
    assert set(re.findall(r"(\w+)=~", expression)) <= _LABELS


def test_alerts() -> None:
    (group,) = yaml.safe_load(_text("prometheus/alerts.yaml"))["groups"]
    for rule in group["rules"]:
        assert rule.keys() == {"alert", "expr", "labels", "annotations"}
        _assert_exists(rule["expr"])
        assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= _LABELS
    _checked(_program("promtool"), "check", "rules", "prometheus/alerts.yaml")


def test_dashboard() -> None:
    board = json.loads(_text("grafana/dashboard.json"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for target in panel["targets"]:
            _assert_exists(target["expr"])
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= _LABELS
    for variable in board["templating"]["list"][1:]:
        _assert_exists(variable["query"]["query"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels), "Grafana has 24 columns"
    codes = panels[0]["fieldConfig"]["defaults"]["mappings"][0]["options"]
    assert set(map(int, codes)) <= set(EXIT_CODES)


def test_grafana_reads_the_dashboard() -> None:
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="no grafana-foundation-sdk here")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    plugins = pytest.importorskip("grafana_foundation_sdk.cog.plugins")
    plugins.register_default_plugins()
    board = json.loads(_text("grafana/dashboard.json"))
    read = json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(board)))
    assert _lost(board, read, "") == []


def _lost(wanted: Any, read: Any, path: str) -> list[str]:
    """Return the keys that Grafana's model does not have or changes. It does not know `definition` of variables, which
    Grafana shows in its editor.
    """
    if isinstance(wanted, dict):
        keys = [key for key in wanted if key != "definition"]
        return [line for key in keys for line in _lost(wanted[key], read.get(key, "absent"), f"{path}.{key}")]
    if isinstance(wanted, list):
        pairs = zip(wanted, read, strict=True)
        return [line for place, pair in enumerate(pairs) for line in _lost(*pair, f"{path}[{place}]")]
    return [] if wanted == read else [f"{path}: {wanted!r} is {read!r}"]
