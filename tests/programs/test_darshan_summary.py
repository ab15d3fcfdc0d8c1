"""Many Darshan logs at once: logs of one program belong together, a table has a row for each program."""

import csv
import io
import os
import shutil
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.analysis.log import analyze, logs_by_program
from dlio_hpc.analysis.log.logs_by_program import LogHead
from dlio_hpc.base.errors import Unexpected
from dlio_hpc.darshan import log_files, log_reader
from dlio_hpc.darshan.log import Log, LogJob
from dlio_hpc.programs import program_table
from dlio_hpc.programs.characterize import characterize
from dlio_hpc.programs.program_table import ProgramRow
from dlio_hpc.programs.reports import program_table_page
from dlio_hpc.reports import terminal
from dlio_hpc.reports.page import Table
from tests.conftest import Run
from tests.programs.test_characterize import Call, _archives, _log
from tests.support.places import LOGS
from tests.support.standins import darshanlog
from tests.support.standins.darshanlog import Traced

APPS = LOGS / "apps"
MIB = 1 << 20
_SPAWNED = "/usr/bin/python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=34) --multi"


def _head(name: str, program: str, job: int = 7, ranks: int = 1, **changes: Any) -> LogHead:
    """Return the head of a log. name: name of the log, or number of the process."""
    path = Path(f"me_x_id{job}-{name}_1.darshan") if name.isdigit() else Path(f"{name}.darshan")
    times = {"started": 100.0, "ended": 200.0, **changes}
    parent = str(times.pop("parent", ""))
    metadata = {"fork_parent": parent} if parent else {}
    record = LogJob(uid=1, id=job, ranks=ranks, program=program, library="", metadata=metadata, mounts={}, **times)
    return LogHead(path, record)


def _grouped(heads: Iterable[LogHead]) -> list[list[str]]:
    return sorted(sorted(head.pid or head.path.stem for head in group) for group in logs_by_program.groups(heads))


def test_processes_of_one_script_in_one_job_are_one_program() -> None:
    train = "/usr/bin/python3 /home/me/train.py --lr 0.1"
    heads = [_head("1", train), _head("2", train), _head("3", "/usr/bin/python3 /home/me/prepare.py")]
    assert _grouped([*heads, _head("4", train, job=8)]) == [["1", "2"], ["3"], ["4"]]
    other_user = heads[1]._replace(job=structs.replace(heads[1].job, uid=2))
    assert _grouped([heads[0], other_user]) == [["1"], ["2"]]


def test_a_forked_process_belongs_to_its_parent() -> None:
    """Without a batch system, the job id is the number of the process."""
    heads = [
        _head("1", "python train.py", job=1),
        _head("2", "python train.py", job=2, parent="1", started=150.0),
        _head("3", "python train.py", job=3, parent="2", started=160.0),
        _head("4", "python train.py", job=4, parent="1", started=5000.0, ended=5010.0),
    ]
    assert _grouped(heads) == [["1", "2", "3"], ["4"]], "the number of a process may be used again"
    loop = [_head("1", "a", job=1, parent="2"), _head("2", "a", job=2, parent="1")]
    assert sum(map(len, _grouped(loop))) == 2


def test_helpers_of_multiprocessing_belong_to_the_program_that_runs() -> None:
    heads = [
        _head("1", "/usr/bin/python3 prepare.py", started=0.0, ended=90.0),
        _head("2", "/usr/bin/python3 train.py"),
        _head("3", _SPAWNED, started=120.0),
        _head("4", _SPAWNED, started=50.0),
        _head("5", _SPAWNED, started=900.0, ended=950.0),
    ]
    assert _grouped(heads) == [["1", "4"], ["2", "3"], ["5"]]


def test_a_program_with_mpi_is_alone() -> None:
    heads = [_head("a", "./ior", ranks=4), _head("b", "./ior", ranks=4), _head("c", "./ior"), _head("d", "./ior")]
    assert _grouped(heads) == [["a"], ["b"], ["c", "d"]]


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/opt/app train.py", "train"),
        ("/usr/bin/python3 /venv/bin/dlio_benchmark workload=unet3d", "dlio_benchmark"),
        ("python3 -X faulthandler -u run_all --x", "run_all"),
        ("python -m mpi4py -m tests.apps.heat", "heat"),
        ("python -c print(1)", "python"),
        ("bash run.sh", "run"),
        ("./ior -a POSIX", "ior"),
        ("", ""),
    ],
)
def test_programs_have_short_names(program: str, name: str) -> None:
    assert logs_by_program.short_name(program) == name


def _rows(*paths: Path) -> list[ProgramRow]:
    return program_table_page.ordered(list(program_table.rows(log_files.below(paths)[0])))


def test_a_row_has_the_numbers_of_the_log() -> None:
    (row,) = _rows(APPS / "h5_patches.darshan")
    analysis = analyze.log_file(APPS / "h5_patches.darshan").analysis
    assert analysis is not None
    assert analysis.read is not None
    assert (row.name, row.job, row.processes, row.ranks) == ("h5_patches", 5451, 2, 2)
    assert (row.bytes_read, row.bytes_written) == (analysis.bytes_read, analysis.bytes_written)
    assert (row.read_MBps, row.is_traced, row.usual_request) == (analysis.read.MBps, True, 32768)
    assert row.seconds == pytest.approx(analysis.job_s)
    assert (row.trust, row.faults, row.training, row.error) == ("good", (), "yes", None)


def test_a_program_of_several_processes_is_one_row() -> None:
    logs = sorted(APPS.glob("torch_loader*"))
    rows = {row.name: row for row in _rows(*logs, APPS / "heat.darshan")}
    row, parts = rows["torch_loader"], [analyze.log_file(log).analysis for log in logs]
    assert (row.logs, row.processes, row.ranks) == (tuple(logs), 3, 1)
    assert row.bytes_read == sum(part.bytes_read for part in parts if part)
    assert list(rows) == ["torch_loader", "heat"]


def test_without_a_trace_the_rate_is_by_the_time_of_a_rank(tmp_path: Path) -> None:
    calls = [Call(rank, f"/d/{rank}.h5", at * MIB, MIB, 1.0 + at, 0.5) for rank in (0, 1) for at in range(4)]
    (row,) = _rows(_log(tmp_path / "x.darshan", calls, traced=False))
    assert row.read_MBps == pytest.approx(8 * MIB / 2 / 1e6)
    assert not row.is_traced
    assert (row.trust, row.faults) == ("part", ("DXT missing",))
    assert row.usual_request == MIB


def test_programs_without_traces_are_not_inconclusive_for_it(tmp_path: Path) -> None:
    calls = [Call(0, "/d/0.h5", at * MIB, MIB, 1.0 + at, 0.5) for at in range(4)]
    banner = program_table_page.banner_of(_rows(_log(tmp_path / "x.darshan", calls, traced=False)), 0)
    assert (banner.state, "1 without a complete trace" in banner.text) == ("good", True)
    cut = program_table_page.banner_of(_rows(LOGS / "mpi4_dxtpartial.darshan"), 0)
    assert cut.state == "inconclusive"


def test_the_usual_request_moves_bytes_in_the_main_direction(tmp_path: Path) -> None:
    calls = [Call(0, "/d/a", 0, 0, 1.0 + at / 10) for at in range(5)]
    calls += [Call(0, "/d/a", 0, 100, 2.0 + at / 10) for at in range(3)]
    writes = [Call(0, "/o/b", at * MIB, MIB, 3.0 + at, write=True) for at in range(2)]
    assert [row.usual_request for row in _rows(_log(tmp_path / "x.darshan", calls))] == [100]
    assert [row.usual_request for row in _rows(_log(tmp_path / "x.darshan", [*calls, *writes]))] == [MIB]


@pytest.mark.parametrize("path", sorted(APPS.glob("*[!_].darshan")), ids=lambda path: path.stem)
def test_training_is_what_characterize_takes_for_training(path: Path) -> None:
    (row,) = _rows(path)
    against = characterize.load([path], None, False).derived.against
    assert (row.training, row.why) == (("no", against[0]) if against else ("yes", ""))


def test_whether_an_unsound_log_is_of_training_is_unknown() -> None:
    (row,) = _rows(LOGS / "mpi4_forkcorrupt.darshan")
    assert (row.trust, row.faults[0], row.training) == ("incomplete", "counters disagree", "unknown")


def test_logs_are_searched_below_folders_and_copies_count_once(tmp_path: Path) -> None:
    deep = tmp_path / "2026" / "11" / "23"
    deep.mkdir(parents=True)
    shutil.copy(APPS / "heat.darshan", deep)
    shutil.copy(APPS / "heat.darshan", tmp_path)
    (deep / "notes.txt").write_text("no log")
    os.symlink(tmp_path, deep / "loop")
    logs, faults = log_files.below([tmp_path, tmp_path / "heat.darshan"])
    assert (len(logs), faults) == (2, [])
    assert len(_rows(tmp_path)) == 1


def test_one_bad_log_does_not_stop_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        _log(tmp_path / f"{name}.darshan", _archives(), program=f"/bin/{name}")
    (tmp_path / "c.darshan").write_bytes(b"no log at all")
    (tmp_path / "d.darshan").write_bytes(b"")
    summarised = analyze.logs_of_program

    def fail_for_a(logs: list[Log], *rest: Any) -> Any:
        if logs[0].path.name == "a.darshan":
            raise ValueError("a surprise")
        return summarised(logs, *rest)

    monkeypatch.setattr(analyze, "logs_of_program", fail_for_a)
    rows = _rows(tmp_path)
    assert [(row.logs[0].name, row.trust) for row in rows] == [
        ("b.darshan", "good"), ("a.darshan", "unreadable"), ("c.darshan", "unreadable"), ("d.darshan", "unreadable")
    ]  # fmt: skip
    assert isinstance(rows[1].error, Unexpected)
    assert [row.error.exit_code for row in rows[2:] if row.error] == [3, 3]


def test_only_the_logs_of_one_program_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        _log(tmp_path / f"{number}.darshan", _archives(files=4), program=f"/bin/program{number}")
    alive: list[Any] = []
    loaded = log_reader.load

    def load(path: Path) -> Log:
        log = loaded(path)
        alive.append(weakref.ref(log.counted["POSIX"]))
        return log

    monkeypatch.setattr(log_reader, "load", load)
    most = 0
    for _ in program_table.rows(sorted(tmp_path.iterdir())):
        most = max(most, sum(reference() is not None for reference in alive))
    assert len(alive) == 30
    assert most <= 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of eight logs of six programs: three are good, two incomplete, one unreadable."""
    made = tmp_path / "logs"
    made.mkdir()
    for log in (*APPS.glob("torch_loader*"), APPS / "heat.darshan", APPS / "csv_memory.darshan"):
        shutil.copy(log, made)
    for name in ("mpi4_forkcorrupt", "mpi4_npz_truncated"):
        shutil.copy(LOGS / f"{name}.darshan", made)
    (made / "broken.darshan").write_bytes(b"nothing")
    return made


_FIRST = "Bad: 6 programs from 8 logs: 3 good, 2 incomplete, 1 unreadable; 2 look like training."


def test_the_table_on_the_terminal(run: Run, folder: Path) -> None:
    done = run("dlio-hpc", "darshan", "--summary", folder)
    assert done.code == 3
    assert done.out.splitlines()[0] == _FIRST
    assert max(map(len, done.out.splitlines())) <= 100
    names = [line.split()[0] for line in done.out.splitlines() if line.rstrip().endswith(("yes", "no", "unknown"))]
    assert names == ["csv_memory", "torch_loader", "heat", "forkr", "reader", "broken.dar..."]
    assert "broken.darshan is not a Darshan log" in done.err
    assert "mpi4_npz_truncated.darshan is incomplete or corrupted: truncated" in done.err


def test_sound_logs_end_with_0(run: Run) -> None:
    done = run("dlio-hpc", "darshan", "--summary", APPS / "heat.darshan")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Good: 1 program from 1 log: 1 good; 0 look like training.")


def test_the_table_as_a_document(run: Run, folder: Path) -> None:
    done = run("dlio-hpc", "darshan", "--summary", folder, "--json")
    document = done.json
    assert done.code == 3
    assert document["summary"] == _FIRST
    assert [document[name] for name in ("programs", "logs", "copies", "good", "part", "incomplete", "unreadable")] == [
        6, 8, 0, 3, 0, 2, 1
    ]  # fmt: skip
    moved = [(row["bytes_read"] or 0) + (row["bytes_written"] or 0) for row in document["rows"]]
    assert moved == sorted(moved, reverse=True)
    assert len(document["rows"][1]["logs"]) == 3
    assert document["rows"][-1]["error"].endswith("its first bytes are corrupted")


def test_the_table_as_csv(run: Run, folder: Path) -> None:
    done = run("dlio-hpc", "darshan", "--summary", folder, "--csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["trust"] for row in rows] == ["good", "good", "good", "incomplete", "incomplete", "unreadable"]
    assert (rows[1]["logs"], rows[1]["processes"], rows[1]["training"]) == ("3", "3", "yes")
    assert int(rows[0]["bytes_read"]) == 45_580_850


def test_the_table_as_a_page(run: Run, folder: Path, tmp_path: Path) -> None:
    run("dlio-hpc", "darshan", "--summary", folder, "--html", "table.html")
    page = (tmp_path / "table.html").read_text()
    assert "6 programs from 8 logs" in page
    assert "broken.darshan is not a Darshan log" in page


def test_the_table_fits_into_80_columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row._replace(job=31_169_020, processes=65536, seconds=3600.0) for row in _rows(folder)]
    (table,) = (block for block in program_table_page.of_rows(rows, 0).sections[0].blocks if isinstance(block, Table))
    for width in (80, 100):
        shown = io.StringIO()
        monkeypatch.setenv("COLUMNS", str(width))
        terminal.show_table(table, terminal.console(shown))
        lines = shown.getvalue().splitlines()
        assert max(map(len, lines)) <= width
        assert sum(line.rstrip().endswith("unknown") for line in lines) == 3
        assert lines[0].rstrip().endswith("training"), "no column is cut off"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--merge",), "--summary analyses all files of all programs"),
        (("--only", "x"), "--summary analyses all files of all programs"),
        (("--perfetto", "x.json"), "--summary has no pictures, traces or timelines"),
        (("--figures", "x"), "--summary has no pictures, traces or timelines"),
    ],
)
def test_options_that_a_summary_does_not_have(run: Run, arguments: tuple[str, ...], message: str) -> None:
    done = run("dlio-hpc", "darshan", "--summary", APPS, *arguments)
    assert (done.code, message in done.err) == (2, True)


def test_a_folder_without_logs_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    shutil.copy(APPS / "heat.darshan", tmp_path / "empty" / "deep")
    done = run("dlio-hpc", "darshan", "empty")
    assert done.code == 2
    assert "empty is neither a recording nor a folder with Darshan logs (*.darshan); dlio-hpc record" in done.err
    assert run("dlio-hpc", "darshan", "--summary", "empty").code == 0
    (tmp_path / "empty" / "deep" / "heat.darshan").unlink()
    assert "no logs (*.darshan) found in empty or in subfolders" in run("dlio-hpc", "darshan", "--summary", "empty").err


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(APPS / "heat.darshan", tmp_path)
    (tmp_path / "secret").mkdir()
    scanned = os.scandir

    def scan(path: Any) -> Any:
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", str(path))
        return scanned(path)

    monkeypatch.setattr(os, "scandir", scan)
    logs, faults = log_files.below([tmp_path])
    assert [log.name for log in logs] == ["heat.darshan"]
    assert [type(fault).exit_code for fault in faults] == [6]
    assert "secret: Permission denied" in str(faults[0])


def test_a_folder_stands_for_its_logs(run: Run, tmp_path: Path) -> None:
    for log in APPS.glob("torch_loader*"):
        shutil.copy(log, tmp_path)
    document = run("dlio-hpc", "darshan", ".", "--json").json
    assert [Path(log["log"]).name for log in document["logs"]] == sorted(log.name for log in tmp_path.glob("*.darshan"))
    (merged,) = run("dlio-hpc", "darshan", ".", "--merge", "--json").json["logs"]
    assert len(merged["merged"]) == 3
    parts = [log["analysis"]["bytes_read"] for log in document["logs"]]
    assert merged["analysis"]["bytes_read"] == sum(parts)
    assert merged["whole"]
    assert merged["analysis"]["traced"]


def test_a_folder_is_characterized_as_one_program(run: Run, tmp_path: Path) -> None:
    for log in APPS.glob("torch_loader*"):
        shutil.copy(log, tmp_path)
    document = run("dlio-hpc", "characterize", ".", "--json").json
    logs = sorted(tmp_path.glob("*.darshan"))
    assert [Path(log).name for log in document["logs"]] == [log.name for log in logs]
    assert document["estimates"] == run("dlio-hpc", "characterize", *logs, "--json").json["estimates"]


def test_merged_logs_have_one_report(run: Run, tmp_path: Path) -> None:
    done = run("dlio-hpc", "darshan", "--merge", *sorted(APPS.glob("torch_loader*")), "--html", "x.html")
    assert done.code == 0, done.err
    assert done.out.startswith("Good: torch_loader (3 logs): counters and trace are complete.")
    assert "3 logs, read as the logs of the processes of one program" in done.out
    assert (tmp_path / "x.html").exists()


def test_what_cannot_be_merged_is_told(run: Run, tmp_path: Path) -> None:
    log = APPS / "heat.darshan"
    twice = run("dlio-hpc", "darshan", "--merge", log, log)
    assert (twice.code, "a log is given twice" in twice.err) == (2, True)
    mpi = run("dlio-hpc", "darshan", "--merge", log, APPS / "csv_memory.darshan")
    assert (mpi.code, "comes from an MPI program" in mpi.err) == (2, True)
    calls = [Call(0, "/d/a", 0, 100, 1.0)]
    for number in (1, 2):
        darshanlog.write(tmp_path / f"{number}.darshan", 1, [Traced("/d/a", 0, [[0, 100, 1.0, 1.1]])], job=number)
    _log(tmp_path / "3.darshan", calls, ranks=1, program="/bin/other")
    done = run("dlio-hpc", "darshan", "--merge", *(tmp_path / f"{number}.darshan" for number in (1, 2, 3)))
    text = " ".join(done.out.split())
    assert "they name 3 jobs: 1, 2, 77; they name 2 programs: train, other" in text


def test_a_fault_of_one_of_the_merged_logs_names_it(run: Run, tmp_path: Path) -> None:
    for number in (1, 2):
        _log(tmp_path / f"{number}.darshan", [Call(0, f"/d/{number}", 0, 5000, 1.0)], ranks=1)
    content = (tmp_path / "2.darshan").read_bytes()
    (tmp_path / "2.darshan").write_bytes(content[:-20])
    done = run("dlio-hpc", "darshan", "--merge", ".")
    assert done.code == 3
    assert "(2.darshan)" in done.out.splitlines()[0]


def test_a_cut_trace_of_a_file_that_all_ranks_share_is_drawn(run: Run, tmp_path: Path) -> None:
    """The counters have no ranks then, but the trace does."""
    traces = [Traced("/d/a", rank, [[0, 100, 1.0, 1.1]]) for rank in (0, 1)]
    counted: Any = [("/d/a", -1, {"READS": 10, "BYTES_READ": 1000, "F_READ_TIME": 1.0})]
    darshanlog.write(tmp_path / "x.darshan", 2, traces, counted=counted, partial=("DXT_POSIX",))
    done = run("dlio-hpc", "darshan", "x.darshan", "--html", "x.html")
    assert done.code == 0, done.err
    assert "DXT cut" in done.out


def test_a_log_is_counted_by_its_process(tmp_path: Path) -> None:
    """The log of a forked process says so; it belongs to the rank of its parent."""
    for number, parent in ((10, ""), (11, "10"), (12, "10")):
        traces = [Traced(f"/d/{number}", 0, [[0, 1000, 1.0, 1.1]])]
        darshanlog.write(tmp_path / f"me_x_id7-{number}_1.darshan", 1, traces, job=number, parent=parent)
    (row,) = _rows(tmp_path)
    assert (row.processes, row.ranks, row.bytes_read) == (3, 1, 3000)


def test_a_log_that_is_not_there_is_a_row(run: Run) -> None:
    done = run("dlio-hpc", "darshan", "--summary", "nowhere.darshan", APPS / "heat.darshan")
    assert done.code == 2
    assert done.out.startswith("Bad: 2 programs from 2 logs: 1 good, 1 unreadable;")


@pytest.mark.parametrize("verb", ["darshan", "characterize"])
def test_an_expression_that_no_file_matches_is_an_error(run: Run, verb: str) -> None:
    log = APPS / "csv_memory.darshan"
    done = run("dlio-hpc", verb, log, "--only", "no/such/file")
    assert done.code == 2
    assert "--only no/such/file: no path matches it; the log has " in done.err
    assert ", such as /" in done.err


def test_a_characterized_program_has_a_page(run: Run, tmp_path: Path) -> None:
    done = run("dlio-hpc", "characterize", APPS / "h5_sequential.darshan", "--html", "program.html", "-o", "w.yaml")
    assert done.code == 0, done.err
    page = (tmp_path / "program.html").read_text()
    for text in ("reader.batch_size", "confidence", "evidence", "Files by role", "Inconclusive"):
        assert text in page
    refused = run("dlio-hpc", "characterize", APPS / "heat.darshan", "--html", "heat.html")
    assert refused.code == 2
    assert "does not look like training" in (tmp_path / "heat.html").read_text()
