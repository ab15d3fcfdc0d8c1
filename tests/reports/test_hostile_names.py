"""Names and files of other people do no harm: no escape sequence on a terminal, no formula in a spreadsheet, no bomb of
aliases in YAML. No other user can read secrets.
"""

import csv
import io
import stat
from pathlib import Path

import pytest

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, shortened
from dlio_hpc.base.safe_text import printable
from dlio_hpc.files import archive
from dlio_hpc.reports import csv_table, terminal
from dlio_hpc.reports.banner import Banner
from dlio_hpc.reports.page import Facts, Lines, Page, Section, Table
from tests.conftest import Run

_ESCAPE = "a\x1b]0;owned\x07b\x1b[2J\x9bc"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.StringIO, _Terminal])
def test_no_control_character_of_a_text_reaches_the_terminal(kind: type[io.StringIO]) -> None:
    table = Table(_ESCAPE, ("file", "MB/s"), [(_ESCAPE, "1.0"), ("plain", "2.0")])
    section = Section(f"heading {_ESCAPE}", (table, Lines([_ESCAPE])))
    facts = (Facts("", [("label", _ESCAPE)]),)
    shown = Page(f"title {_ESCAPE}", _ESCAPE, Banner("good", _ESCAPE), facts, (section,), (_ESCAPE,), (), _ESCAPE)
    out = kind()
    terminal.show(shown, out)
    text = out.getvalue()
    assert "owned" in text
    for sequence in ("\x1b]", "\x07", "\x1b[2J", "\x9b"):
        assert sequence not in text
    assert ("\x1b[" in text) == (kind is _Terminal), "colours are the console's own"


def test_messages_have_no_control_characters() -> None:
    assert (
        shortened(_ESCAPE) == "a\N{REPLACEMENT CHARACTER}]0;owned\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[2J"
        "\N{REPLACEMENT CHARACTER}c"
    )
    assert printable("a\u202eb\u2066c") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert printable("two\nlines\tand a tab, é, 漢") == "two\nlines\tand a tab, é, 漢"


def test_a_name_with_an_escape_sequence_is_printed_without_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / f"x{_ESCAPE.replace('/', '')}.yaml").write_text("dataset: 3\n")
    for arguments in (
        ("dlio-hpc", "import", f"x{_ESCAPE}.yaml"), ("dlio-submit", f"x{_ESCAPE}.yaml", "-s", "local", "--dry-run"),
        ("dlio-hpc", "archive", "list", f"x{_ESCAPE}.yaml"), ("dlio-hpc", "status", f"x{_ESCAPE}"),
    ):  # fmt: skip
        done = run(*arguments)
        assert done.code != 0
        assert "\x1b" not in done.out + done.err
        assert "\x07" not in done.out + done.err


def test_spreadsheets_execute_no_cell() -> None:
    out = io.StringIO()
    cells = [
        '=HYPERLINK("http://x")',
        "+1+2",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "-1.5e3",
        "+0.5",
        "plain",
        3,
        -4.5,
        "",
        "\x1b[2J",
    ]
    csv_table.write([cells], out)
    (row,) = csv.reader(io.StringIO(out.getvalue()))
    assert row == [
        '\'=HYPERLINK("http://x")', "'+1+2", "'-2+3", "'@SUM(A1)", "'\t=1", "-1.5e3", "+0.5", "plain", "3", "-4.5", "",
        "\N{REPLACEMENT CHARACTER}[2J",
    ]  # fmt: skip


def _bomb(levels: int, width: int) -> str:
    lines = [f"a0: &a0 [{', '.join(['x'] * width)}]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(["dataset: {}", *lines])


def test_aliases_that_multiply_are_refused_before_they_do(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="more than 1,000,000 values, those that aliases repeat included"):
        serialization.parse_yaml(_bomb(9, 9), "bomb.yaml")
    assert serialization.parse_yaml(_bomb(3, 5), "small.yaml")["a2"][0][0] == ["x"] * 5
    with pytest.raises(ConfigError, match="the value a contains itself"):
        serialization.parse_yaml("a: &a [1, *a]", "ring.yaml")
    assert serialization.parse_yaml("a: &b {c: 1}\nd: *b", "plain.yaml")["d"] == {"c": 1}
    assert serialization.parse_yaml("a: 2 * 3", "text.yaml") == {"a": "2 * 3"}
    (tmp_path / "bomb.yaml").write_text(f"model: {{name: x}}\n{_bomb(9, 9)}")
    for verb in (("dlio-hpc", "import"), ("dlio-submit", "-s", "local", "--dry-run")):
        done = run(*verb, "bomb.yaml")
        assert done.code == 2
        assert "bomb.yaml: more than 1,000,000 values" in done.err


@pytest.mark.job
def test_a_secret_of_the_site_profile_is_for_its_owner_only(
    run: Run, tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ("-S", 'site.environment={"API_TOKEN": "hunter2"}')
    done = run("dlio-submit", small, "-s", "local", "--ppn", 1, "--wait", "--json", *keys)
    folder = Path(done.job["directory"])
    assert any("API_TOKEN of the site profile may be secret" in note for note in done.job["notes"])
    for path in (folder / "plan.json", folder / "job.sh", Path(done.job["archive"])):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    modes = []

    def faults(path: Path) -> list[str]:
        modes.append(stat.S_IMODE(path.stat().st_mode))
        return []

    monkeypatch.setattr(archive, "faults", faults)
    archive.create(folder, tmp_path / "again.tar.zst")
    assert modes == [0o600], "before it has its name"
    other = run("dlio-submit", small, "-s", "local", "--ppn", 1, "--json", "--wait")
    assert (Path(other.job["directory"]) / "plan.json").stat().st_mode & 0o044
    assert not any("secret" in note for note in other.job["notes"])
