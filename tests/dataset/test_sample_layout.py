"""Which sample of a generated dataset contains a byte of a file."""

import pytest

from dlio_hpc.config import workload
from dlio_hpc.dataset.sample_layout import SampleLayout


@pytest.mark.parametrize("gap", [0, 16])
@pytest.mark.parametrize("stdev", [0, 200])
@pytest.mark.parametrize("per_file", [1, 2, 5])
def test_the_first_and_the_last_byte_of_a_sample_belong_to_it(per_file: int, stdev: int, gap: int) -> None:
    sample = f"{{bytes: 1000, stdev: {stdev}, seed: 3}}" if stdev else "{bytes: 1000}"
    keys = ("dataset.files=4", f"dataset.samples_per_file={per_file}", f"dataset.sample={sample}")
    layout = SampleLayout(workload.load("demo", keys).dataset)
    for number in range(4):
        for place in layout.in_file(number):
            begin = place.offset + place.within * gap
            assert [layout.holder(number, at, gap) for at in (begin, begin + place.size - 1)] == [place.sample] * 2


@pytest.mark.parametrize("stdev", ["", ", stdev: 200"])
def test_bytes_behind_the_last_sample_of_a_file_count_as_its_own(stdev: str) -> None:
    keys = ("dataset.files=4", "dataset.samples_per_file=5", f"dataset.sample={{bytes: 1000{stdev}}}")
    layout = SampleLayout(workload.load("demo", keys).dataset)
    assert [layout.holder(number, 7000) for number in range(4)] == [4, 9, 14, 19]
