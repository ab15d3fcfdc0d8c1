"""Upper bounds on the bytes that a run may read, against bounds that are written out."""

from dlio_hpc.config import workload
from dlio_hpc.dataset import planned_bytes

_RECORDS = ("dataset={format: tfrecord, files: 6, samples_per_file: 5, sample: {bytes: 4000}}",)
_LIBRARY = (*_RECORDS, "reader.mode=framework", "reader.loader=tensorflow")


def test_most_bytes_of_a_library_that_chooses_its_reads() -> None:
    """Each sample has a frame of 16 bytes, 2 % are spare, and each process may read 1 MiB of anything."""
    asked = workload.load("demo", (*_LIBRARY, "reader.shuffle.samples=false"))
    assert planned_bytes.most(asked, 3, 120_000) == int(120_000 * 4016 / 4000 * 1.02) + 3 * (1 << 20)
    chosen = workload.load("demo", _LIBRARY)
    assert planned_bytes.most(chosen, 3, 120_000) == int(120_000 * 4016 / 4000 * 1.02), "dlio-hpc itself reads"


def test_ranks_that_choose_their_reads_have_no_other_limit() -> None:
    for keys in (_RECORDS, ("dataset.format=npz",), ("dataset.format=npz", "reader.mode=framework")):
        assert planned_bytes.most(workload.load("demo", keys), 3, 120_000) is None


def test_row_groups_that_stay_together_are_read_once() -> None:
    """A block of half a row group needs it twice, and one that divides it into parts with others needs it for each."""
    dataset = "dataset={format: parquet, files: 3, samples_per_file: 600, row_group: 60, sample: {bytes: 40}}"
    reader = "reader={mode: framework, batch_size: 20, read_threads: 1, shuffle: {samples: true}}"
    factors = [
        planned_bytes.row_group_factor(workload.load("demo", (dataset, reader, f"reader.shuffle.block={block}")))
        for block in (1, 25, 30, 60, 120)
    ]
    assert factors == [60, 12, 2, 1, 1]
