import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlio_hpc import __version__
from dlio_hpc.cli import outputs
from tests.conftest import BIN, Run
from tests.support.places import ROOT


def test_version_and_help(run: Run) -> None:
    for program in ("dlio-hpc", "dlio-submit"):
        assert run(program, "--version").out == f"{program} {__version__}\n"
        for flag in ("-h", "--help"):
            assert run(program, flag).out.startswith("Usage: ")


def test_dry_run_prints_the_script_and_the_command_and_does_nothing(run: Run, tmp_path: Path) -> None:
    done = run("dlio-submit", "demo", "-s", "local", "--dry-run")
    assert done.code == 0
    assert done.out.startswith("#!/bin/bash\n")
    assert "mpiexec -n 4" in done.out
    assert "# Submit command:\n# setsid timeout" in done.out
    assert list(tmp_path.iterdir()) == []
    shown = run("dlio-submit", "demo", "-s", "local", "--dry-run", "--json").job
    assert shown["state"] == "planned"
    assert shown["script"].splitlines()[0] == "#!/bin/bash"
    assert shown["runs"] == []
    assert list(tmp_path.iterdir()) == []


def test_starting_up_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    program = """
import sys
sys.argv = ["dlio-submit", "demo", "-s", "local", "--dry-run"]
from dlio_hpc.cli.command_line import submit_main
try:
    submit_main()
except SystemExit as end:
    assert not end.code
slow = {"numpy", "h5py", "mpi4py", "rich", "zstandard", "pandas", "matplotlib", "tensorflow", "torch",
        "importlib.metadata", "dlio_hpc.core", "dlio_hpc.reports"}
print(slow & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stderr == "set()\n"


def test_the_core_and_the_login_side_do_not_import_each_other() -> None:
    package = ROOT / "dlio_hpc"
    for module in package.glob("core/**/*.py"):
        for name in ("dlio_hpc.batch", "dlio_hpc.cli", "dlio_hpc.reports", "click", "jinja2", "yaml"):
            assert name not in module.read_text(), f"{module} imports {name}"
    for folder in ("batch", "cli", "report"):
        for module in (package / folder).glob("*.py"):
            assert "from dlio_hpc.core" not in module.read_text(), module
    slow = "{'click', 'jinja2', 'yaml', 'rich', 'pandas', 'mpi4py.MPI'}"
    program = f"import sys, dlio_hpc.core.run; print({slow} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


_NOBODYS = "no job or study 'absent' in dlio-runs; give a name in that folder, or the path of a directory or archive"
_ON_JOBS = (
    ("report",), ("status",), ("wait",), ("cancel",), ("collect",), ("compare",), ("similarity", "theta_8_nodes:ffn"),
    ("accept", "--criteria", "acceptance"), ("baseline", "accept", "--message", "quiet"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dlio-submit",), "nothing to measure: give a WORKLOAD, or --study NAME, or --suite NAME"),
        (
            ("dlio-submit", "absent"),
            "no workload 'absent'; give a YAML file or one of: background_metadata, background_read,",
        ),
        (("dlio-submit", "absent.yaml"), "cannot read absent.yaml"),
        (
            ("dlio-submit", "demo", "-s", "absent"),
            "no site 'absent'; give a YAML file or one of: aurora, flux, frontier, local,",
        ),
        (("dlio-submit", "demo", "--nonsense"), "No such option"),
        (("dlio-submit", "demo", "-N", "0"), "'-N' / '--nodes'"),
        (("dlio-submit", "demo", "-s", "local", "-N", "2"), "--nodes 2: site local allows at most 1 per job"),
        (("dlio-submit", "demo", "-t", "never"), "found 'never'; use a time limit such as 30 (minutes)"),
        (("dlio-submit", "demo", "--dataset-size", "3 B"), "is less than one sample, which has 1 MiB"),
        (
            ("dlio-submit", "demo", "-S", "dataset.format=hdf9"),
            "dataset.format: found 'hdf9'; did you mean 'hdf5'? use one of: tfrecord, hdf5, npz, npy, jpeg",
        ),
        (("dlio-submit", "demo", "-S", "reader.batchsize=3"), "did you mean 'batch_size'?"),
        (
            ("dlio-submit", "demo", "-s", "local", "--tf-profile", "-S", "reader.loader=pytorch"),
            "--tf-profile: reader.loader=pytorch does not use TensorFlow; add -S reader.loader=tensorflow",
        ),
        (("dlio-submit", "demo", "--generate", "perhaps"), "found 'perhaps'; use one of: auto, separate, only, never"),
        (("dlio-hpc", "nonsense"), "No such command 'nonsense'"),
        (("dlio-hpc", "report", "absent"), _NOBODYS),
        (("dlio-hpc", "report", "."), "is not a job directory"),
        *((("dlio-hpc", *verb, "absent"), _NOBODYS) for verb in _ON_JOBS),
        (("dlio-submit", "--resume", "absent"), _NOBODYS),
        (("dlio-submit", "demo", "-s", "local", "--after", "absent"), _NOBODYS.partition(" in ")[2]),
        (("dlio-submit", "cosmofow"), "no workload 'cosmofow'; did you mean 'cosmoflow'? give a YAML file or one"),
        (("dlio-submit", "fig9"), "no workload 'fig9'; did you mean the study 'fig9'?"),
        (("dlio-submit", "nigthly"), "no workload 'nigthly'; did you mean the suite 'nightly'?"),
        (("dlio-submit", "--study", "fig99"), "no study 'fig99'; did you mean 'fig9'?"),
        (("dlio-submit", "--suite", "acceptence"), "no suite 'acceptence'; did you mean 'acceptance'?"),
        (("dlio-submit", "demo", "-s", "Theat"), "no site 'Theat'; did you mean 'theta'?"),
        (("dlio-hpc", "reprot", "x"), "No such command 'reprot'; did you mean 'report'?"),
        (("dlio-hpc", "archive", "verfy", "x"), "No such command 'verfy'; did you mean 'verify'?"),
        (("dlio-submit", "demo", "-S", "read_threads=4"), "'read_threads'; did you mean 'reader.read_threads'?"),
        (("dlio-submit", "demo", "-S", "readthreads=4"), "'readthreads'; did you mean 'reader.read_threads'?"),
        (("dlio-submit", "demo", "-P", "read_threads=1,4"), "'read_threads'; did you mean 'reader.read_threads'?"),
        (
            ("dlio-submit", "demo", "-S", "train.batch_size=4"),
            "train: unknown key 'batch_size'; did you mean 'reader.b",
        ),
        (
            ("dlio-submit", "demo", "-S", "seed=4"),
            "did you mean 'dataset.sample.seed' or 'reader.shuffle.seed' or 'compute.time.seed'?",
        ),
        (("dlio-submit", "demo", "-S", "site.command=srun"), "'command'; did you mean 'launcher.command'?"),
        (("dlio-submit", "demo", "-P", "reader.read_threads=1:4"), "write a range as 1..4, or with a factor as 1..4*2"),
        (
            ("dlio-submit", "demo", "-P", "reader.transfer_size=64KiB-1MiB"),
            "write a range as 64KiB..1MiB, or with a factor",
        ),
        (("dlio-submit", "demo", "-N", "1:4"), "write a range as 1..4"),
        (
            ("dlio-hpc", "collect"),
            "no jobs in dlio-runs, which does not exist; give the directory of your jobs with --runs",
        ),
        (("dlio-hpc", "cancel"), "give the jobs to cancel, or --all"),
        (("dlio-hpc", "archive", "verify", "absent"), "cannot read absent"),
        (("dlio-hpc", "sites", "absent"), "no site 'absent'"),
        (("dlio-hpc", "workloads", "absent"), "no workload 'absent'"),
    ],
)
def test_a_users_mistake_is_told_in_words_with_exit_code_2(run: Run, arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.code == 2
    assert message in done.err
    assert done.out == ""


def test_a_runs_folder_that_cannot_be_written(run: Run) -> None:
    done = run("dlio-submit", "demo", "-s", "local", "-o", "/proc/runs")
    assert done.code == 6
    assert (
        "--runs /proc/runs: cannot create files in /proc: No such file or directory; choose another folder" in done.err
    )


def test_an_archive_that_is_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.tar.zst").write_bytes(b"nothing")
    for command in (("archive", "verify"), ("archive", "list"), ("archive", "extract"), ("report",)):
        done = run("dlio-hpc", *command, "a.tar.zst")
        assert done.code == 3, command
        assert "a.tar.zst" in done.err


def test_what_is_shipped_is_listed_and_shown(run: Run) -> None:
    assert "* local " in run("dlio-hpc", "sites").out
    assert "demo " in run("dlio-hpc", "workloads").out
    assert run("dlio-hpc", "sites", "local").out.splitlines()[1].startswith("# This computer, without a batch")
    assert "format: npz" in run("dlio-hpc", "workloads", "demo").out
    names = {entry["name"]: entry for entry in run("dlio-hpc", "workloads", "--json").json["workloads"]}
    assert names["demo"]["dataset_bytes"] == 2**28
    assert [entry["name"] for entry in run("dlio-hpc", "sites", "--json").json["sites"]] == [
        "aurora", "flux", "frontier", "local", "lumi", "pbs", "perlmutter", "polaris", "slurm", "theta", "tuolumne",
    ]  # fmt: skip
    assert run("dlio-hpc", "sites", "theta", "--json").json["scheduler"] == "cobalt"


def test_every_option_is_an_environment_variable(run: Run, tmp_path: Path) -> None:
    done = run(
        "dlio-submit", "demo", "--dry-run", "--json",
        DLIO_HPC_SITE="local", DLIO_HPC_RUNS="elsewhere", DLIO_HPC_PPN="3", DLIO_HPC_REPEAT="2",
    )  # fmt: skip
    assert done.job["directory"].startswith(f"{tmp_path}/elsewhere/demo-")
    assert "mpiexec -n 3" in done.job["script"]
    assert "02-measure-2" in done.job["script"]


def test_a_site_from_a_file_is_obeyed_and_its_launcher_looked_for(run: Run, tmp_path: Path) -> None:
    text = run("dlio-hpc", "sites", "local").out
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        text.replace("command: mpiexec ", "command: no-such-launcher ").replace(
            "ranks_per_node: 4", "ranks_per_node: 2"
        )
    )
    assert "no-such-launcher -n 2" in run("dlio-submit", "demo", "-s", mine, "--dry-run").out
    done = run("dlio-submit", "demo", "-s", mine)
    assert done.code == 6
    assert "no-such-launcher was not found" in done.err
    assert "pip install mpi4py mpich" in done.err
    assert not (tmp_path / "dlio-runs").exists()


def test_accounts_and_queues_are_recorded_where_they_mean_nothing(run: Run, small: Path, tmp_path: Path) -> None:
    done = run("dlio-submit", small, "-s", "local", "-A", "physics", "-q", "debug", "-J", "--hold", "--json")
    assert done.code == 0
    assert "--account, --queue, --job-option: no effect, because site local has no batch system" in done.err
    assert done.job["state"] in {"submitted", "running"}
    assert done.job["archive"] is None
    plan = json.loads((Path(done.job["directory"]) / "plan.json").read_bytes())
    assert (plan["account"], plan["queue"], plan["job_options"]) == ("physics", "debug", ["--hold"])
    assert run("dlio-hpc", "wait", done.job["directory"], "--quiet").code == 0


def test_a_reader_that_has_seen_enough_is_no_fault(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; '{BIN}/dlio-hpc' workloads demo | head -c 1"],
        capture_output=True,
        check=False,
    )
    assert done.stderr == b""


@pytest.mark.parametrize(
    "override",
    [
        "name={[a]: b}", "name={? [a] : b}", "name=!!map [a]", "name=!!int abc", "name=!!float x", "name=!!bool foo",
        "name=!!timestamp abc", "name=!!int ''", "train.epochs=" + "9" * 5000, "name=" + "[" * 5000, "reader={1: 2}",
        "compute.time=1e400s", "compute.time=1e300", "compute.time=-1", "dataset.files=1e30",
        "train.epochs=1" + "0" * 20,
        "dataset.files=9007199254740992", "reader.prefetch=100000000000", "dataset.sample.bytes=1e400",
        "dataset.sample.shape=[9007199254740992]", "dataset.format=", "name=\x07", "dataset=1", "reader=null", "name=1",
    ],
)  # fmt: skip
def test_the_oddest_values_are_refused_in_a_few_words(run: Run, override: str) -> None:
    done = run("dlio-submit", "demo", "-s", "local", "--dry-run", "-S", override)
    assert done.code == 2, done.out
    assert len(done.err) < 1000
    assert done.err.startswith("dlio-submit: ")


def test_many_aliases_are_no_flood(run: Run, tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    (tmp_path / "bomb.yaml").write_text("\n".join([*lines, "name: *a7"]))
    done = run("dlio-submit", "./bomb.yaml", "--dry-run")
    assert done.code == 2
    assert len(done.err) < 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ("dlio-submit", "demo", "-d", "s3://bucket/x"), ("dlio-submit", "demo", "-o", "gs://bucket"),
        ("dlio-submit", "demo", "--archive", "hdfs://name/x"), ("dlio-submit", "demo", "--ab", "old", "s3://bucket/x"),
        ("dlio-submit", "demo", "-S", "site.data=s3://bucket/x"), ("dlio-submit", "s3://bucket/mine.yaml"),
        ("dlio-submit", "--study", "https://host/mine.yaml"), ("dlio-submit", "demo", "-s", "https://host/mine.yaml"),
        ("dlio-submit", "demo", "-d", "file:///scratch/x"), ("dlio-hpc", "datasets", "list", "-d", "s3://bucket/x"),
        ("dlio-hpc", "check", "-d", "s3://bucket/x"), ("dlio-hpc", "history", "--archive", "s3://bucket/x"),
    ],
)  # fmt: skip
def test_urls_are_no_paths(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    dry = ("--dry-run", "-s", "local") if arguments[0] == "dlio-submit" and "-s" not in arguments else ()
    done = run(*arguments, *dry)
    assert done.code == 2
    assert "is a URL" in done.err
    assert ("give only the path: /scratch/x" if "file:" in arguments[-1] else "mount that storage") in done.err
    assert list(tmp_path.iterdir()) == []


def test_urls_in_the_environment_and_in_study_files_are_no_paths(run: Run, tmp_path: Path) -> None:
    done = run("dlio-submit", "demo", "-s", "local", "--dry-run", DLIO_HPC_DATA="s3://bucket/x")
    assert done.code == 2
    assert "s3:// is not supported" in done.err
    (tmp_path / "mine.yaml").write_text("{name: mine, workload: 's3://bucket/w.yaml', parts: {a: {}}}")
    done = run("dlio-submit", "--study", "./mine.yaml", "-s", "local", "--dry-run")
    assert done.code == 2
    assert "s3:// is not supported" in done.err


def test_less_done_than_asked_is_said(run: Run, small: Path) -> None:
    for options, note in (
        (
            ("--dataset-size", "1MiB"),
            "--dataset-size: the dataset of small grows from 351.6 KiB to 996.1 KiB, and dataset.files from 6 to 17",
        ),
        (("-S", "train.steps=99"), "train.steps: the dataset has samples for only 2 of the 99 steps per epoch"),
        (
            ("-S", "reader.transfer_size=1MiB"),
            "reader.transfer_size: requests have at most 48000 bytes, because",
        ),
    ):
        done = run("dlio-submit", small, "-s", "local", *options, "-o", "runs")
        assert done.code == 0
        assert f"note: {note}" in done.err
        assert f"note: {note}" in run("dlio-submit", small, "--dry-run", "-s", "local", *options).err
        cost = run("dlio-hpc", "estimate", small, "-s", "local", *options).out
        assert f"Note: {note}" in " ".join(cost.split())
    assert run("dlio-hpc", "wait", "-o", "runs").code == 0


@pytest.mark.parametrize(("mode", "size", "has_note"), [
    ("torch", "64 KiB", True), ("torch", "1 MiB", False), ("posix", "64 KiB", False),
])  # fmt: skip
def test_a_request_size_that_a_library_ignores_has_a_note(
    run: Run, small: Path, mode: str, size: str, has_note: bool
) -> None:
    keys = ("-S", f"checkpoint.mode={mode}", "-S", f"checkpoint.transfer_size={size}")
    done = run("dlio-submit", small, "-s", "local", "--dry-run", *keys)
    assert done.code == 0, done.err
    assert ("checkpoint.transfer_size: no effect with checkpoint.mode=torch: its library" in done.err) is has_note


def test_notes_stand_wherever_the_plan_is_shown(run: Run, small: Path) -> None:
    """Notes on a shrunk dataset appear in the dry run, the cost, the check, the job's report, and in JSON."""
    wanted = (small, "-s", "local", "--dataset-size", "240KiB", "-S", "train.steps=99", "-A", "me")
    ends = "train.steps: the dataset has samples for only 2 of the 99 steps per epoch"
    notes = [ends, "--account: no effect, because site local has no batch system"]
    dry = run("dlio-submit", *wanted, "--dry-run")
    assert [line for line in dry.err.splitlines() if line.startswith("note: ")] == [f"note: {note}" for note in notes]
    assert "note: " not in dry.out, "a script on stdout stays one"
    assert not run("dlio-submit", *wanted, "--dry-run", "--quiet").err
    assert run("dlio-submit", *wanted, "--dry-run", "--json").job["notes"] == notes
    cost = " ".join(run("dlio-hpc", "estimate", *wanted).out.split())
    assert all(f"Note: {note}" in cost for note in notes)
    assert run("dlio-hpc", "estimate", *wanted, "--json").json["notes"] == notes
    checked = run("dlio-hpc", "check", *wanted, "--no-launch", "--json")
    assert set(notes) <= {finding["text"] for finding in checked.json["findings"]}
    done = run("dlio-submit", *wanted, "--wait", "--json")
    assert done.job["notes"] == notes
    report = " ".join(run("dlio-hpc", "report", done.job["directory"]).out.split())
    assert all(f"note {note}" in report for note in notes)


def test_a_note_on_some_points_of_a_study_names_them(run: Run, small: Path, tmp_path: Path) -> None:
    wanted = (small, "-s", "local", "--ppn", "1,2", "-S", "train.steps=5")
    note = "train.steps: the dataset has samples for only 4 of the 5 steps per epoch (ranks per node=2)"
    dry = run("dlio-submit", *wanted, "--dry-run")
    assert [line for line in dry.err.splitlines() if line.startswith("note: ")] == [f"note: {note}"]
    assert run("dlio-hpc", "estimate", *wanted, "--json").json["notes"] == [note]
    assert f"Note: {note}" in " ".join(run("dlio-hpc", "estimate", *wanted).out.split())
    done = run("dlio-submit", *wanted, "--wait", "--json")
    assert done.json["notes"] == [note]
    (folder,) = (path.parent for path in (tmp_path / "dlio-runs").glob("*/study.json") if path.parent.name[-2] != "-")
    assert f"note {note}" in " ".join(run("dlio-hpc", "report", folder).out.split())


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    for option in (b"-A", b"-o", b"-d"):
        command = [bytes(BIN / "dlio-submit"), b"demo", b"-s", b"local", option, b"r\xff"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 2
        assert b"is not valid UTF-8; rename it" in done.stderr
        assert list(tmp_path.iterdir()) == []


def test_a_working_directory_that_is_gone() -> None:
    command = f"d=$(mktemp -d); cd $d; rmdir $d; '{BIN}/dlio-submit' demo -s local --dry-run"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "the working directory was deleted" in done.stderr


def test_closed_and_short_pipes(tmp_path: Path) -> None:
    for command in (
        f"'{BIN}/dlio-hpc' sites >&-",
        f"('{BIN}/dlio-hpc' sites; echo $? > code) | true; exit $(cat code)",
    ):
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_profiles_and_workloads_as_json_have_their_defaults(run: Run) -> None:
    assert run("dlio-hpc", "sites", "local", "--json").json["ranks_per_node"] == 4
    assert run("dlio-hpc", "workloads", "demo", "--json").json["reader"]["drop_last"] is False


def test_overrides_from_the_environment_come_a_line_each(run: Run) -> None:
    overrides = "dataset.sample.shape=[16, 16]\ntrain.epochs=3"
    assert run("dlio-submit", "demo", "-s", "local", "--dry-run", DLIO_HPC_SET=overrides).code == 0


def test_verifying_goes_on_after_an_archive_that_is_not_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.tar.zst").write_bytes(b"x")
    done = run("dlio-hpc", "archive", "verify", "absent", "broken.tar.zst")
    assert done.code == 3
    assert "cannot read absent" in done.err
    assert "broken.tar.zst: it cannot be read to its end" in done.err


@pytest.mark.parametrize("text", ["name: " + "[" * 100_000 + "]" * 100_000, "- " * 50_000])
def test_depth_that_would_end_the_parser_is_refused(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "deep.yaml").write_text(text)
    done = run("dlio-submit", "./deep.yaml", "--dry-run")
    assert done.code == 2
    assert "levels deep" in done.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("result.json", ("report", "x.tar.zst", "--html")), ("a.tar.zst", ("report", "x.tar.zst", "--html")),
        ("a.tar.zst", ("accept", "x", "--criteria", "acceptance", "--junit")), ("history.db", ("history", "--influx")),
        ("history.db", ("history", "--openmetrics")), ("a.darshan", ("darshan", "x.darshan", "--perfetto")),
        ("plan.json", ("characterize", "x.darshan", "-o")), ("job.sh", ("import", "x.yaml", "-o")),
    ],
)  # fmt: skip
def test_no_output_replaces_a_record(run: Run, tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    (tmp_path / name).write_text("the only copy")
    done = run("dlio-hpc", *words, tmp_path / name)
    assert done.code == 2
    assert "which is not overwritten" in " ".join(done.err.split())
    assert (tmp_path / name).read_text() == "the only copy"


def test_a_workload_that_was_edited_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, path = tmp_path / "repository.yaml", tmp_path / "w.yaml"
    path.symlink_to(target)
    texts = [f"# by dlio-hpc\nreader: {{batch_size: {size}}}\n" for size in (4, 77, 8, 99, 16)]
    outputs.write_workload(path, texts[0])
    outputs.write_workload(path, texts[0])
    assert sorted(tmp_path.iterdir()) == [target, path], "equal content is no edit"
    for edited, written in ((1, 2), (3, 4)):
        path.write_text(texts[edited])
        outputs.write_workload(path, texts[written])
        assert (path.is_symlink(), target.read_text()) == (True, texts[written]), "a link stays a link"
    assert [(tmp_path / name).read_text() for name in ("w.yaml~", "w.yaml~1")] == [texts[1], texts[3]]
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"wrote {path}; {path}~1 is a copy of the earlier file"


def test_a_workload_for_the_standard_output_makes_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("# by dlio-hpc\n")
    program = "from pathlib import Path\nfrom dlio_hpc.cli import outputs\n"
    program += "outputs.write_workload(Path('/dev/stdout'), '# by dlio-hpc: 1')"
    with path.open("a") as file:
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
    assert (list(tmp_path.iterdir()), "dlio-hpc: 1" in path.read_text()) == ([path], True)
    assert Path("/dev/stdout").is_symlink()
