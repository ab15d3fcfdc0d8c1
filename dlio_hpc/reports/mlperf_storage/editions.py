"""The editions of MLPerf Storage for which reports can be written, and the workloads of each edition."""

from typing import Literal, NamedTuple

EditionName = Literal["v2", "v3"]
Division = Literal["closed", "open"]
Family = Literal["training", "checkpointing"]


class SuiteModel(NamedTuple):
    """A workload of MLPerf Storage. folder: name of the folder of the workload. name: value of model.name in the
    workload file of MLPerf Storage. accelerator: emulated accelerator; None for checkpoints. format: value of
    dataset.format in that file.
    """

    family: Family
    folder: str
    name: str
    accelerator: str | None = None
    format: str | None = None


class Edition(NamedTuple):
    """An edition of MLPerf Storage. revision, date: the version of mlcommons/storage that the layout follows. criteria:
    name of the shipped criteria file with the edition's limits. models: workloads of the edition, by their names in
    dlio-hpc.
    """

    version: str
    revision: str
    date: str
    criteria: str
    models: dict[str, SuiteModel]


def _training(folder: str, accelerators: tuple[str, ...], kind: str) -> dict[str, SuiteModel]:
    return {f"{folder}_{name}": SuiteModel("training", folder, folder, name, kind) for name in accelerators}


# Names in configs/dlio/workload/*.yaml, which are the same in both editions. Folders are the names of --model.
_CHECKPOINTS = {
    f"llama3_{size}": SuiteModel("checkpointing", f"llama3-{size}", f"llama_{size}")
    for size in ("8b", "70b", "405b", "1t")
}

EDITIONS: dict[EditionName, Edition] = {
    "v2": Edition(
        "v2.0", "caa90c9c", "2025-06-13", "mlperf_storage_v2",
        {
            **_training("unet3d", ("a100", "h100"), "npz"),
            **_training("resnet50", ("a100", "h100"), "tfrecord"),
            **_training("cosmoflow", ("a100", "h100"), "tfrecord"),
            **_CHECKPOINTS,
        },
    ),
    "v3": Edition(
        "v3.0", "6980038d", "2026-06-26", "mlperf_storage_v3",
        {**_training("unet3d", ("b200",), "npz"), **_training("retinanet", ("b200", "mi355"), "jpeg"), **_CHECKPOINTS},
    ),
}  # fmt: skip
