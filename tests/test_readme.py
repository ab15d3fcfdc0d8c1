"""README's promises that a program can hold it to."""

import re
import textwrap
from pathlib import Path

from dlio_hpc.config.dataset_keys import AuxiliaryFile, Dataset, Sample
from dlio_hpc.config.workload import Checkpoint, ComputeTime, Workload, load

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_it_leads_with_demo_and_test_and_ci_runs_the_latter() -> None:
    commands = re.findall(r"^    make (\w+)", README, re.MULTILINE)
    assert commands[:2] == ["demo", "test"]
    assert "\nmake test\n" in (Path(__file__).parents[1] / ".ci" / "run").read_text()


def test_the_workload_in_full_shows_the_defaults(tmp_path: Path) -> None:
    block = README[README.index("    name: mine") : README.index("Sizes are bytes or text")]
    (tmp_path / "mine.yaml").write_text(textwrap.dedent(block))
    shown = load(str(tmp_path / "mine.yaml"))
    least = Workload("mine", Dataset("npz", 64, 4, Sample(shape=(512, 512), dtype="float32")))
    assert shown == least
    reader = shown.reader
    for struct in (
        Dataset,
        Sample,
        Workload,
        type(reader),
        type(reader.shuffle),
        type(shown.train),
        ComputeTime,
        Checkpoint,
        AuxiliaryFile,
    ):
        for key in struct.__struct_fields__:
            assert re.search(rf"\b{key}\b", block), f"{key} is not shown"
