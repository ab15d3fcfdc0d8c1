"""The smallest dataset that MLPerf Storage allows."""

import pytest

from tests.conftest import Run


def test_memory_decides(run: Run) -> None:
    made = run("dlio-hpc", "datasize", "unet3d_h100", "--ppn", 2, "--memory", "1000GiB", "--json").json
    assert made["for_steps"] == 500 * 7 * 2
    assert made["files"] == -(-5 * 1000 * 2**30 // 146600628)
    assert made["samples"] == made["files"] == made["for_memory"]


def test_steps_decide(run: Run) -> None:
    done = run("dlio-hpc", "datasize", "retinanet_b200", "-N", 2, "--ppn", 8, "--memory", "1GiB")
    assert done.out.splitlines() == [
        "192,000 files x 1 sample, 57.75 GiB: -S dataset.files=192000",
        "500 steps per epoch on 16 ranks: 192,000 samples",
        "5 x the memory of 2 nodes, 1GiB each: 33,248 samples",
    ]


def test_a_shared_file_gets_more_samples(run: Run) -> None:
    done = run("dlio-hpc", "datasize", "cosmic_tagger", "--ppn", 4, "--memory", "64GiB")
    assert done.out.startswith("1 file x ")
    assert "-S dataset.samples_per_file=" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("llama3_8b", "--memory", "1GiB"), "llama3_8b reads no dataset"),
        (("unet3d_h100", "--memory", "much"), "--memory much: "),
        (("unet3d_h100", "--memory", "0"), "--memory must be the memory of a node"),
        (("unet9d", "--memory", "1GiB"), "no workload 'unet9d'"),
    ],
)
def test_what_has_no_size(run: Run, arguments: tuple[str, ...], message: str) -> None:
    done = run("dlio-hpc", "datasize", *arguments, "--ppn", 1)
    assert done.code == 2
    assert message in done.err
