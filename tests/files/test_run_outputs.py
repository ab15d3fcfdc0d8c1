"""The folder of the outputs of runs: what runs made is removed, and everything else stays."""

import os
import subprocess
from pathlib import Path

import pytest

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.files import run_outputs
from tests.conftest import Run, ahead

_OURS = (
    "0/0/f0.0", "0/0/3/f17.0.r", "2/shared/12/f3.11", "rank00000-summary", "rank00012-0.ckpt", "rank123456-0.ckpt",
    "checkpoint001-rank00000-3.pt", "zero_pp_rank_0_mp_rank_3_optim_states.pt", "model_0_model_states.ckpt",
    "layer_17-model_3_model_states.weights.h5", "zero_pp_rank_1_mp_rank_0_model_states.pt", "checkpoint/.metadata",
    "kv/0/3/b12", "kv/1/0/pool", "kv/1/3/s0", "checkpoint/__3_0.distcp", "checkpoint012/__3_0.distcp",
    "checkpoint/.metadata.tmp",
)  # fmt: skip
_FOREIGN = (
    "thesis.txt", "0/notes", "0/f1.0", "0/0/thesis/ch1.tex", "model.pt", "checkpoint/thesis.pt", "0/0/d1.0",
    "rank1-x", "rank00000-0.ckpt/x", "kv/thesis", "kv/0/b1", "kv/0/0/b1.txt",
)  # fmt: skip


def _filled(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()
    return folder


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_what_runs_made_is_removed(tmp_path: Path) -> None:
    outputs = _filled(tmp_path / "outputs-j", *_OURS)
    (outputs / "0" / "0" / "d2.0").mkdir()
    assert run_outputs.foreign(outputs) == []
    run_outputs.remove(outputs)
    assert not outputs.exists()


@pytest.mark.parametrize("path", _FOREIGN)
def test_what_no_run_made_stays(tmp_path: Path, path: str) -> None:
    outputs = _filled(tmp_path / "outputs-j", *(one for one in _OURS if one != path.rpartition("/")[0]), path)
    (top,) = run_outputs.foreign(outputs)
    assert path.startswith(top)
    with pytest.raises(ConfigError, match="contains files that no run made; move them away: "):
        run_outputs.remove(outputs)
    assert _files(outputs) == [path]


def test_links_and_pipes_stay(tmp_path: Path) -> None:
    other = _filled(tmp_path / "other", "0/f0.0")
    outputs = _filled(tmp_path / "outputs-j", "0/0/f0.0")
    (outputs / "1").symlink_to(other)
    (outputs / "0" / "0" / "f1.0").symlink_to(other / "0" / "f0.0")
    os.mkfifo(outputs / "rank00000-0.ckpt")
    with pytest.raises(ConfigError, match=r"move them away: 0/0/f1\.0, 1, rank00000-0\.ckpt"):
        run_outputs.remove(outputs)
    assert _files(other) == ["0/f0.0"]
    assert sorted(os.listdir(outputs)) == ["0", "1", "rank00000-0.ckpt"]


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = _filled(tmp_path / "other", *_OURS)
    (tmp_path / "outputs-j").symlink_to(other)
    run_outputs.discard(str(tmp_path / "outputs-j"))
    run_outputs.discard(str(tmp_path / "missing"))
    assert _files(other) == sorted(_OURS)
    assert "is a link or not a folder" in capsys.readouterr().err


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away and mounts")
def test_files_of_other_users_and_mounts_stay(tmp_path: Path) -> None:
    outputs = _filled(tmp_path / "outputs-j", "0/0/f0.0", "0/0/f1.0", "1/0/f0.0")
    os.chown(outputs / "0" / "0" / "f1.0", 12345, 12345)
    precious = _filled(tmp_path / "precious", "f0.0")
    if subprocess.run(["mount", "--bind", precious, outputs / "1" / "0"], check=False, capture_output=True).returncode:
        pytest.skip("no mounts here")
    try:
        with pytest.raises(ConfigError, match=r"move them away: 0/0/f1\.0, 1/0"):
            run_outputs.remove(outputs)
    finally:
        subprocess.run(["umount", outputs / "1" / "0"], check=True)
    assert _files(precious) == ["f0.0"]
    os.chown(outputs, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to user number 12345"):
        run_outputs.remove(outputs)


@pytest.mark.parametrize("names", [3, 300])
def test_a_message_names_a_few_entries(tmp_path: Path, names: int) -> None:
    outputs = _filled(tmp_path / "outputs-j", *(f"own-{number}" for number in range(names)))
    with pytest.raises(ConfigError) as caught:
        run_outputs.remove(outputs)
    assert str(caught.value).endswith("own-2" if names == 3 else "own-101 and 295 more")


@pytest.mark.job
@pytest.mark.parametrize("workload", ["metadata_own", "checkpoints", "kv_cache_llama3_8b"])
def test_a_job_leaves_foreign_files_in_its_outputs(tmp_path: Path, run: Run, workload: str) -> None:
    """A file that another program puts into the folder while a run lasts is kept, and named."""
    (tmp_path / "checkpoints.yaml").write_text(
        "name: checkpoints\n"
        "dataset: {format: 'null', files: 4, samples_per_file: 8, sample: {bytes: 1 KiB}}\n"
        "checkpoint: {files: [1 MiB]}\n"
    )
    started = tmp_path / "started"
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sitecustomize.py").write_text(_INTRUDER.format(path=str(started)))
    which = "./checkpoints.yaml" if workload == "checkpoints" else workload
    more = ["-S", "metadata.files=20"] if workload == "metadata_own" else []
    if workload.startswith("kv"):
        more = ["-S", "inference.time=1s", "-S", "inference.model={layers: 1, kv_heads: 4, head_dim: 64}"]
    command = ("dlio-submit", which, "-s", "local", "--ppn", 1, "-d", "data", *more, "--wait", "--json")
    done = run(*command, **ahead(tmp_path / "broken"))
    assert done.code == 0, done
    (outputs,) = (tmp_path / "data").glob("outputs-*")
    assert _files(outputs) == ["thesis.txt"]
    job = tmp_path / "dlio-runs" / done.job["job"]
    assert f"{outputs} contains files that no run made; move them away: thesis.txt" in (job / "job.err").read_text()


# A change of the ranks: when a folder of outputs is made, a foreign file appears in it.
_INTRUDER = """\
import sys
if "dlio_hpc.core" in " ".join(sys.orig_argv):
    import contextlib, os
    from dlio_hpc.core import output_folder
    usual = output_folder.made
    @contextlib.contextmanager
    def made(path):
        with usual(path) as folder:
            yield folder
        if os.path.isdir(path) and not os.path.exists({path!r}):
            open({path!r}, "w").close()
            open(os.path.join(path, "thesis.txt"), "w").close()
    output_folder.made = made
"""
