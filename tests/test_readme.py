"""README's promises that a program can hold it to."""

import re
from pathlib import Path

from dlio_hpc import document
from dlio_hpc.workload import Dataset, Sample, Workload

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_it_leads_with_demo_and_test_and_ci_runs_the_latter() -> None:
    commands = re.findall(r"^    make (\w+)", README, re.MULTILINE)
    assert commands[:2] == ["demo", "test"]
    assert "\nmake test\n" in (Path(__file__).parents[1] / ".ci" / "run").read_text()


def test_the_workload_in_full_shows_the_defaults() -> None:
    block = README[README.index("    name: mine") : README.index("Sizes are bytes or text")]
    shown = document.convert(document.parse_yaml(block, "README"), Workload, "README")
    least = Workload("mine", Dataset("npz", 64, 4, Sample(shape=(512, 512), dtype="float32")))
    assert shown == least
    for struct in (Dataset, Sample, Workload, type(shown.reader), type(shown.reader.shuffle), type(shown.train)):
        for key in struct.__struct_fields__:
            assert re.search(rf"\b{key}\b", block), f"{key} is not shown"
