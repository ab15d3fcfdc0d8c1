"""Titles of a history's groups consist of names and settings; digests appear only where these are equal."""

from typing import Any

from msgspec import structs

from dlio_hpc.reports import history_rows
from dlio_hpc.verdict import group_names, run_groups
from dlio_hpc.verdict.history_entry import Entry
from tests.support import nights


def _entry(night: int, workload: dict[str, Any], settings: str, title: str = "", study: str = "") -> Entry:
    key = structs.replace(nights.KEY, settings=settings)
    made = nights.entry(night, [100.0, 101.0], key)
    runs = tuple(structs.replace(measurement, title=title) for measurement in made.measurements)
    return structs.replace(made, measurements=runs, workloads={settings: workload}, study=study or made.study)


def _titles(*entries: Entry) -> list[str]:
    return group_names.titles([group for entry in entries for group in run_groups.of(entry)])


REST = "cosmoflow on theta, 2 x 4 ranks; lustre /scratch, 8 stripes of 1 MiB; as dlio-hpc 0.1.0"


def test_a_suites_parts_go_by_their_names() -> None:
    study = "nightly-20261121-013031-ec32ce"
    titles = _titles(_entry(0, {}, "a" * 12, "records", study), _entry(1, {}, "b" * 12, "images", study))
    assert titles == [f"nightly records: {REST}", f"nightly images: {REST}"]
    (point,) = _titles(_entry(0, {}, "a" * 12, "reader.batch_size=4", "cosmoflow-20261121-013031-ec32ce"))
    assert point == f"reader.batch_size=4: {REST}"
    assert _titles(_entry(0, {}, "a" * 12)) == [REST]
    blocks = history_rows.blocks([_entry(0, {}, "a" * 12, "records", study)], [], "samples_per_s")
    assert [(block.title, block.name) for block in blocks] == [
        (f"nightly records: {REST}", "nightly records: cosmoflow on theta, 2 x 4 ranks")
    ]


def test_what_would_look_alike_is_told_apart_in_words_else_by_digest() -> None:
    four, eight = ({"name": "cosmoflow", "reader": {"batch_size": size, "direct": True}} for size in (4, 8))
    assert _titles(_entry(0, four, "a" * 12), _entry(1, eight, "b" * 12)) == [
        f"{REST}; reader.batch_size=4", f"{REST}; reader.batch_size=8"
    ]  # fmt: skip
    assert _titles(_entry(0, four, "a" * 12), _entry(1, four, "b" * 12)) == [
        f"{REST}; settings aaaaaaaaaaaa", f"{REST}; settings bbbbbbbbbbbb"
    ]  # fmt: skip
    assert _titles(_entry(0, four, "a" * 12), _entry(1, four, "a" * 12)) == [REST, REST], "one key, two nights"
    many = {"reader": dict.fromkeys("abcd", 1)}
    titles = _titles(_entry(0, many, "a" * 12), _entry(1, {"reader": {}}, "b" * 12))
    assert titles[0] == f"{REST}; reader.a=1, reader.b=1, reader.c=1 and 1 more, settings aaaaaaaaaaaa"
    assert titles[1].startswith(f"{REST}; reader.a=null, ")
