"""Tables on terminals: they fit the width, state each sentence once, and obey no name of other people."""

import csv
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.base.safe_text import in_ascii
from dlio_hpc.batch import job_record
from dlio_hpc.files import rundir
from dlio_hpc.reports import terminal
from dlio_hpc.reports.page import Table
from dlio_hpc.verdict import baselines, history
from tests.conftest import BIN, Run
from tests.support import nights, studies

_ESCAPE = "a\x1b]0;owned\x07b\x1b[2J\x9bc"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """Return a folder with the history of 100 nights: a baseline, cached and failed jobs, and long names."""
    folder = tmp_path / "archive"
    folder.mkdir()
    fault = "job ended as node_fail: node n1 does not respond, and the job was requeued by the batch system"
    for night in range(100):
        job = f"cosmoflow_h100-of-the-acceptance-20261121-020000-{night:06x}"
        failed: dict[str, Any] = (
            {"fault": fault, "exit_code": 6, "state": "failed", "measurements": ()} if night in (97, 98) else {}
        )
        storage = "cached" if night in (95, 96) else "storage"
        made = nights.entry(night, [100.0 + night % 5, 100.5, 99.5], storage=storage, job=job, **failed)
        history.enter(folder, made)
    baselines.accept(folder, history.entries(folder)[50], "quiet night")
    return folder


def _lines_after_banner(out: str) -> list[str]:
    """Return the lines after the first one, which is the subject of a mail if the output is no terminal."""
    return out.splitlines()[1:]


def _width(lines: list[str]) -> int:
    """Return the length of the longest line. A line that is the path of a folder alone may have any length."""
    return max(len(line) for line in lines if not (line.startswith("/") and " " not in line))


def _on_terminal(folder: Path, *arguments: object, columns: int = 80, lines: int = 24, **environment: str) -> str:
    """Return what a command prints on a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "PAGER", "LESS")}
    done = subprocess.Popen(
        [BIN / "dlio-hpc", *map(str, arguments)], cwd=folder, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL,
        env=kept | {"TERM": "xterm"} | environment,
    )  # fmt: skip
    os.close(theirs)
    content = b""
    try:
        while part := os.read(ours, 1 << 16):
            content += part
    except OSError:  # the terminal is closed
        pass
    os.close(ours)
    assert done.wait() in (0, 1, 5), content
    return _COLOUR.sub("", content.decode()).replace("\r\n", "\n")


def test_a_history_fits_80_columns_and_states_each_note_once(archives: Path, run: Run) -> None:
    out = run("dlio-hpc", "history", "--archive", archives).out
    assert _width(_lines_after_banner(out)) <= 80
    assert " ".join(out.split()).count("node n1 does not respond") == 1
    assert out.count("cached") == 1
    assert len(re.findall(r"^20\d\d-\d\d-\d\d ", out, re.MULTILINE)) == 100, "all jobs, if the output is no terminal"


def test_a_terminal_lists_the_newest_jobs_and_says_how_many_are_left_out(archives: Path, run: Run) -> None:
    shown = _on_terminal(archives, "history", "--archive", archives, "--no-pager")
    assert len(re.findall(r"^20\d\d-\d\d-\d\d ", shown, re.MULTILINE)) == 30
    assert "100 jobs; the newest 30 are listed, 70 are left out; --last 100 lists all" in " ".join(shown.split())
    assert shown.count("\n") < 100
    assert "cosmoflow_h100-of-the-acceptance-20261121-020000-000063" in shown, "names can be copied"
    assert _width(shown.splitlines()) <= 80
    wide = _on_terminal(archives, "history", "--archive", archives, "--no-pager", "--last", 3, columns=120)
    assert "cosmoflow_h100-of-the-acceptance-20261121-020000-000063" in wide, "names are whole where they fit"
    assert len(run("dlio-hpc", "history", "--archive", archives, "--last", 7, "--json").json["jobs"]) == 7
    assert len(run("dlio-hpc", "history", "--archive", archives, "--json").json["jobs"]) == 100
    rows = run("dlio-hpc", "history", "--archive", archives, "--last", 1, "--csv").out.splitlines()
    assert len(rows) == 1 + 3
    assert run("dlio-hpc", "history", "--archive", archives, "--last", 0).code == 2


def test_changes_are_those_of_all_jobs_although_few_are_listed(tmp_path: Path, run: Run) -> None:
    for entry in nights.entries([100.0] * 12 + [90.0] * 12, 0.01):
        history.enter(tmp_path, entry)
    out = " ".join(run("dlio-hpc", "history", "--archive", tmp_path, "--last", 2).out.split())
    assert "worse since nightly-012 (2026-09-13)" in out
    assert "nightly-023" in out
    assert "nightly-021" not in out


def test_long_output_goes_through_the_pager(archives: Path) -> None:
    """PAGER names the program that shows the text. No program shows it if PAGER is empty or cat. less runs with the
    options FRX, as for Git.
    """
    pager = "sed s/^/paged:/"
    command = ("history", "--archive", archives)
    assert _on_terminal(archives, *command, PAGER=pager).count("paged:") > 24
    for options, lines, environment in ((("--no-pager",), 24, pager), ((), 120, pager), ((), 24, "cat"), ((), 24, "")):
        shown = _on_terminal(archives, *command, *options, lines=lines, PAGER=environment)
        assert "paged:" not in shown, (options, lines, environment)
        assert "History of samples/s" in shown
    assert "LESS=FRX" in _on_terminal(archives, *command, PAGER="sh -c 'echo LESS=$LESS; cat >/dev/null'")


def test_compare_states_each_sentence_once_and_the_worst_first(archives: Path, run: Run) -> None:
    for night, level in ((100, 101.0), (101, 70.0), (102, 99.0)):
        history.enter(archives, nights.entry(night, [level, level + 0.5, level - 0.5]))
    names = ("nightly-100", "nightly-101", "nightly-102")
    done = run("dlio-hpc", "compare", *names, "--archive", archives, "--tolerance", "0.4%")
    assert done.code == 1
    assert _width(_lines_after_banner(done.out)) <= 80
    text = " ".join(done.out.split())
    assert text.count("other activity on the nodes was not recorded") == 1
    assert text.count("% worse than the") + text.count("% better than the") <= 3
    outcomes = re.findall(r"^\d  (regression|inconclusive|pass|improved)", done.out, re.MULTILINE)
    assert len(outcomes) == 3
    assert outcomes[0] == "regression"
    assert outcomes == sorted(outcomes, key=["regression", "inconclusive", "improved", "pass"].index)
    for letter, name in zip("ABC", ("nightly-101", *(name for name in names if name != "nightly-101")), strict=True):
        assert re.search(rf"^job {letter} +nightly-", done.out, re.MULTILINE), name
    verdicts = run("dlio-hpc", "compare", *names, "--archive", archives, "--tolerance", "0.4%", "--json").json[
        "verdicts"
    ]
    assert [verdict["job"] for verdict in verdicts] == list(names), "JSON keeps the order of the command line"
    page = archives / "c.html"
    assert run("dlio-hpc", "compare", *names, "--archive", archives, "--tolerance", "0.4%", "--html", page).code == 1
    assert page.read_text().count("other activity on the nodes was not recorded") == 1


def test_compare_explains_the_names_of_runs(archives: Path, run: Run) -> None:
    cached = run("dlio-hpc", "compare", history.entries(archives)[95].job, "--archive", archives)
    assert cached.code == 4
    assert "Names of runs: a number in the order of execution" in " ".join(cached.out.split())
    assert "interval" not in cached.out, "columns without a value are left out"


def _job(runs: Path, name: str, state: str, hour: int, status: int | None = None, **rest: object) -> Path:
    """Make the directory of a job of another host in this state."""
    made = studies.make(runs, repeat=1, name=name)
    studies.write(made, lambda *_: 100.0)
    folder = runs / name
    record = job_record.load(folder)
    times = [structs.replace(record.states[0], state="planned", time=f"2026-11-21T{hour:02}:00:00Z"),
             structs.replace(record.states[0], state=state, time=f"2026-11-21T{hour:02}:30:00Z")]  # fmt: skip
    job_record.save(folder, structs.replace(record, states=tuple(times), **rest))
    (folder / rundir.EXIT_STATUS).unlink(missing_ok=True)
    if status is not None:
        (folder / rundir.EXIT_STATUS).write_text(f"{status}\n")
    return folder


def test_status_puts_jobs_that_need_attention_first_and_the_newest_before(tmp_path: Path, run: Run) -> None:
    runs = tmp_path / "dlio-runs"
    (runs / "archive").mkdir(parents=True)
    long = "unet3d_h100-of-the-suite-for-the-acceptance-of-the-site-20261121-020000-abcdef-night3"
    for hour, (name, status) in enumerate((("old", 0), ("broken", 3), (long, 0), ("kept", 0), ("new", 0))):
        folder = _job(runs, name, "failed" if status else "completed", hour, status)
        if name != "kept":
            (runs / "archive" / f"{folder.name}.tar.zst").write_bytes(b"")
    out = run("dlio-hpc", "status").out
    assert out.startswith("2 of 5 jobs need attention (!): ")
    assert "1 invalid" in out
    assert "1 not collected" in out
    rows = [line.split() for line in out.splitlines() if "2026-11-21" in line]
    assert [row[1 if row[0] == "!" else 0] for row in rows[:2]] == ["kept", "broken"]
    assert [row[0] for row in rows[2:]] == ["new", "completed", "old"]
    assert [row[0] == "!" for row in rows] == [True, True, False, False, False]
    lines = out.splitlines()
    assert [line.split() for line in lines if long in line] == [[long]], "the whole name, in a line of its own"
    assert _width([line for line in lines if long not in line]) <= 80
    assert "dlio-hpc collect archives them" in " ".join(out.split())
    shown = _on_terminal(tmp_path, "status", columns=140)
    assert long in shown
    only_good = run("dlio-hpc", "status", "new", "old").out
    assert only_good.startswith("2 jobs: 2 completed.")
    assert [job["job"] for job in run("dlio-hpc", "status", "old", "new", "--json").json["jobs"]] == [
        "old",
        "new",
    ]


def test_names_of_other_people_do_no_harm(tmp_path: Path, run: Run) -> None:
    """A job, a site, a workload and a fault with escape sequences and formulas are listed, compared and exported."""
    folder, runs = tmp_path / "archive", tmp_path / "dlio-runs"
    folder.mkdir()
    key = structs.replace(nights.KEY, workload=f"=1+{_ESCAPE}", site=f"@{_ESCAPE}\nx")
    for night in range(3):
        history.enter(folder, nights.entry(night, [100.0, 101.0], key, job=f"+{_ESCAPE}{night}", study="-2+3"))
    history.enter(folder, nights.entry(3, [], key, job="bad", fault=_ESCAPE, exit_code=6, state="failed"))
    _job(runs, "j", "failed", 1, 3, site=_ESCAPE)
    record = job_record.load(runs / "j")
    job_record.save(runs / "j", structs.replace(record, job=f"j{_ESCAPE}"))
    for arguments in (
        ("history", "--archive", folder), ("history", "--archive", folder, "--csv"), ("status",),
        ("compare", f"+{_ESCAPE}2", "--archive", folder),
    ):  # fmt: skip
        done = run("dlio-hpc", *arguments)
        assert "owned" in done.out, arguments
        for sequence in ("\x1b", "\x07", "\x9b"):
            assert sequence not in done.out, arguments
    table = csv.DictReader(io.StringIO(run("dlio-hpc", "history", "--archive", folder, "--csv").out))
    for row in table:
        assert all(row[name].startswith("'") for name in ("job", "study", "site", "workload")), row


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}])
def test_terminals_without_unicode_get_ascii(archives: Path, run: Run, environment: dict[str, str]) -> None:
    _job(archives / "dlio-runs", "j", "completed", 1, 0)
    newest = history.entries(archives)[-1].job
    for arguments in (
        ("history", "--archive", archives), ("compare", newest, "--archive", archives),
        ("status", "-o", archives / "dlio-runs"), ("report", archives / "dlio-runs" / "j"),
    ):  # fmt: skip
        done = run("dlio-hpc", *arguments, **environment)
        assert done.code in (0, 1, 5), done
        assert done.out.isascii(), arguments
        assert "-----" in done.out, "the rule of a table"
        assert "\\u" not in done.out
    assert in_ascii("▁▂█ … é") == r"_.# ... \xe9"


def test_a_table_of_numbers_that_is_too_wide_is_printed_whole() -> None:
    out = io.StringIO()
    console = terminal.console(out)
    rows = [["1234567890.5" for _ in range(9)], ["1.5" for _ in range(9)]]
    terminal.show_table(Table("", ["a"] * 9, rows), console)
    assert out.getvalue().count("1234567890.5") == 9
    narrow = io.StringIO()
    table = Table("", ["name", "text"], [["x" * 60, "a word " * 20]], names=(0,))
    terminal.show_table(table, terminal.console(narrow))
    assert max(map(len, narrow.getvalue().splitlines())) <= 80
    assert "x" * 60 in narrow.getvalue(), "names are never cut"


@pytest.mark.parametrize("verb", ["sites", "workloads"])
def test_lists_of_files_fit_into_80_columns_and_keep_names_whole(verb: str, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / ("configuration-of-the-facility-" + "x" * 60) / {"sites": "site_profiles"}.get(verb, verb)
    folder.mkdir(parents=True)
    name = {"sites": "local", "workloads": "demo"}[verb]
    (folder / "mine.yaml").write_text(run("dlio-hpc", verb, name).out)
    out = run("dlio-hpc", verb, DLIO_HPC_SITE_PATH=str(folder.parent)).out
    assert _width([line for line in out.splitlines() if "x" * 60 not in line]) <= 80
    assert str(folder.parent) in out, "a path is not broken"
    assert "mine" in out


def test_piped_output_has_the_width_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    widths = {}
    for columns in ("", "100"):
        monkeypatch.setenv("COLUMNS", columns)
        out = io.StringIO()
        terminal.show_text("word " * 60, terminal.console(out))
        widths[columns] = _width(out.getvalue().splitlines())
    assert 70 < widths[""] <= 80 < widths["100"] <= 100


def test_several_runs_are_a_table_and_the_one_with_the_median_rate(tmp_path: Path, run: Run) -> None:
    runs = tmp_path / "dlio-runs"
    rates = {0: 100.0, 1: 140.0, 2: 120.0}
    studies.write(studies.make(runs, repeat=3, name="three"), lambda point, repeat: rates[repeat])
    out = run("dlio-hpc", "report", runs / "three").out
    rows = [line.split()[:2] for line in out.splitlines() if re.match(r"\d\d-measure-\d  ", line)]
    names = [name for name, _ in rows]
    assert [float(rate) for _, rate in rows] == pytest.approx([100.0, 140.0, 120.0], rel=0.01)
    assert re.search(r"^median of 3 +1[12]\d\.\d ", out, re.MULTILINE)
    assert f"{names[2]} has the median rate" in out
    assert [name for name in names if f"\n{name}\n" in out] == [names[2]]
    assert _width(re.findall(r"^(?:\d\d-measure-\d  |median of).*$", out, re.MULTILINE)) <= 80
    full = run("dlio-hpc", "report", "--full", runs / "three").out
    assert [name for name in names if f"\n{name}\n" in full] == names
    assert "median rate" not in full


def test_a_long_report_repeats_its_first_sentence_unless_a_pager_shows_it(archives: Path) -> None:
    shown = _on_terminal(archives, "history", "--archive", archives, "--no-pager")
    first = shown.partition("\n\n")[0]
    assert shown.endswith(f"\n\n{first}\n")
    short = _on_terminal(archives, "history", "--archive", archives, "--last", "1", lines=100)
    assert not short.endswith(f"{short.partition(chr(10) * 2)[0]}\n")
