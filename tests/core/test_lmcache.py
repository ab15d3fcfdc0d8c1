"""Files of LMCache: the names, sizes and system calls of its library, and those of dlio-hpc.

The tables are what strace recorded of lmcache 0.5.6 (PyPI, 2026-11-30) with Python 3.11 on ext4. Where lmcache can be
imported, the same is checked of the library itself.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import site, workload
from dlio_hpc.config.inference_keys import CACHE_MODELS, CacheModel, InferenceKeys, Lengths
from dlio_hpc.core import buffers, kv_blocks
from dlio_hpc.core.kv_blocks import LMCacheAdapterFiles, LMCacheFiles, ShortBlock
from dlio_hpc.dataset.kv_tiers import BlockPlace
from dlio_hpc.files import filesystem, run_outputs
from dlio_hpc.plan import cost
from tests.support import planning, straced

_Layout = Literal["lmcache", "lmcache_fs"]
_TOKENS = 16
_SIZE = 2 << 20  # 2 x 32 layers x 16 tokens x 8 heads x 128 numbers x 2 bytes
_BLOCKS = 3

_CREATED = "O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC 0666"
_CREATED_DIRECT = "O_WRONLY|O_CREAT|O_DIRECT|O_CLOEXEC 0644"
_BUFFERED_READ = ("open O_RDONLY|O_CLOEXEC", "fstat", f"read {_SIZE}", "close")
_DIRECT_READ = ("open O_RDONLY|O_DIRECT|O_CLOEXEC", "fstat", f"read {_SIZE}", "close")
# Calls on the file of a block when it is written, read and removed, by layout and inference.direct. Calls that do not
# reach the file system (lseek, ioctl TCGETS) are left out, because they depend on the version of Python.
_MEASURED: dict[tuple[_Layout, bool], tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    ("lmcache", False): ((f"open {_CREATED}", "fstat", f"write {_SIZE}", "close"), _BUFFERED_READ, ("unlink",)),
    ("lmcache", True): ((f"open {_CREATED_DIRECT}", f"write {_SIZE}", "close"), _DIRECT_READ, ("unlink",)),
    ("lmcache_fs", False): (
        ("stat", f"open .tmp {_CREATED}", "fstat", f"write {_SIZE}", "close", "rename"),
        ("stat", *_BUFFERED_READ),
        ("stat", "unlink"),
    ),
    ("lmcache_fs", True): (
        ("stat", f"open .tmp {_CREATED_DIRECT}", f"write {_SIZE}", "close", "rename"),
        ("stat", *_DIRECT_READ),
        ("stat", "unlink"),
    ),
}
_LAYOUTS = pytest.mark.parametrize(("layout", "direct"), list(_MEASURED))


def _keys(layout: _Layout, direct: bool, **given: Any) -> InferenceKeys:
    usual: dict[str, Any] = {
        "users": 1, "time": units.Seconds(1), "interval": units.Seconds(1), "prompt": Lengths(mean=100),
        "answer": Lengths(mean=100), "block_tokens": _TOKENS, "file_layout": layout, "direct": direct,
    }  # fmt: skip
    return InferenceKeys(**(usual | given))


def _place(serial: int) -> BlockPlace:
    return BlockPlace(serial, serial, 0, serial)


# A block of each serial has bytes of this serial + 1.
_OURS = f"""\
import sys
from dlio_hpc.base import units
from dlio_hpc.config.inference_keys import InferenceKeys, Lengths
from dlio_hpc.core import buffers, kv_blocks
from dlio_hpc.dataset.kv_tiers import BlockPlace
layout, direct = sys.argv[1], sys.argv[2] == "True"
keys = InferenceKeys(
    users=1, time=units.Seconds(1), interval=units.Seconds(1), prompt=Lengths(mean=100), answer=Lengths(mean=100),
    block_tokens={_TOKENS}, file_layout=layout, direct=direct,
)
blocks = kv_blocks.opened("blocks", keys)
row = buffers.allocate(1, keys.block_bytes).rows[0]
places = [BlockPlace(serial, serial, 0, serial) for serial in range({_BLOCKS})]
for place in places:
    row[:] = place.serial + 1
    blocks.write(place, row.data)
for place in places:
    row[:] = 0
    blocks.read(place, row.data)
    assert (row == place.serial + 1).all()
blocks.remove(places[0])
"""

# The same with LMCache. argv: layout or native, direct, what to do, hashes of the blocks.
_LIBRARY = f"""\
import asyncio, os, select, sys, threading, time
import torch
from lmcache.v1.memory_allocators.mixed_memory_allocator import MixedMemoryAllocator
from lmcache.v1.memory_management import MemoryFormat

layout, direct, steps, hashes = sys.argv[1], sys.argv[2] == "True", sys.argv[3].split(","), sys.argv[4:]
model, kind, shape = "meta-llama/Llama-3.1-8B", torch.bfloat16, torch.Size([2, 32, {_TOKENS}, 1024])
memory = MixedMemoryAllocator(16 * {_SIZE}, align_bytes=4096)


def filled(byte):
    block = memory.allocate(shape, kind, MemoryFormat.KV_2LTD)
    block.tensor.view(torch.uint8).fill_(byte)
    return block


def check(block, byte):
    assert block is not None and (block.tensor.view(torch.uint8) == byte).all(), byte


def local_disk():
    from lmcache.utils import CacheEngineKey
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
    from lmcache.v1.storage_backend.local_disk_backend import LocalDiskBackend
    config = LMCacheEngineConfig.from_defaults(
        chunk_size={_TOKENS}, local_cpu=False, local_disk="blocks", max_local_disk_size=1.0,
        extra_config={{"use_odirect": direct}},
    )
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    disk = LocalDiskBackend(config, loop, LocalCPUBackend(config, memory_allocator=memory), "cpu")
    keys = [CacheEngineKey(model, 1, 0, int(one, 16), kind) for one in hashes]
    done = []
    for number, key in enumerate(keys):
        if "write" in steps:
            disk.submit_put_task(key, filled(number + 1), on_complete_callback=done.append)
            while len(done) <= number:
                time.sleep(0.01)
        else:
            disk.insert_key(key, {_SIZE}, shape, kind, MemoryFormat.KV_2LTD)
    if "read" in steps:
        for number, key in enumerate(keys):
            check(disk.get_blocking(key), number + 1)
    if "remove" in steps:
        disk.remove(keys[0])


def adapter():
    from lmcache.v1.distributed.api import ObjectKey
    if layout == "lmcache_fs":
        from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import FSL2Adapter, FSL2AdapterConfig
        disk = FSL2Adapter(FSL2AdapterConfig("blocks", use_odirect=direct))
    else:
        from lmcache.lmcache_fs import LMCacheFSClient
        from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import NativeConnectorL2Adapter
        disk = NativeConnectorL2Adapter(LMCacheFSClient("blocks", 4, "", direct, 0), type_name="fs_native")
    rank = ObjectKey.ComputeKVRank(1, 0, 1, 0)
    keys = [ObjectKey(bytes.fromhex(one), model, rank) for one in hashes]
    blocks = [filled(number + 1 if "write" in steps else 0) for number in range(len(keys))]
    if "write" in steps:
        disk.submit_store_task(keys, blocks)
        select.select([disk.get_store_event_fd()], [], [])
    if "read" in steps:
        disk.submit_lookup_and_lock_task(keys, {{}})
        select.select([disk.get_lookup_and_lock_event_fd()], [], [])
        for block in blocks:
            block.tensor.view(torch.uint8).fill_(0)
        disk.submit_load_task(keys, blocks)
        select.select([disk.get_load_event_fd()], [], [])
        for number, block in enumerate(blocks):
            check(block, number + 1)
    if "remove" in steps:
        disk.delete(keys[:1])


local_disk() if layout == "lmcache" else adapter()
print("done", flush=True)
os._exit(0)
"""

_TRACED = (
    "openat,close,read,readv,pread64,preadv,preadv2,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,unlink,"
    "unlinkat,rename,renameat,renameat2,stat,lstat,fstat,newfstatat,statx,access,truncate,ftruncate,fallocate,fadvise64"
)
_LINE = re.compile(r"^(\d+[.]\d+) (\w+)\((.*)\) += (-?\d+)", re.MULTILINE)
_FILE = re.compile(r"([\w.-]+@[\w@]+)(\.pt|\.data|\.tmp)")
_FLAGS = re.compile(r"(O_[A-Z_|]+)(?:, (0\d+))?")


def _traced(folder: Path, program: str, *arguments: str) -> dict[str, tuple[str, ...]]:
    """Run a Python program under strace, and return the calls on each file of a block, by its name."""
    strace = ("strace", "-ff", "-ttt", "-y", "-s", "0", "-e", "signal=none", "-e", f"trace={_TRACED}", "-o", "trace")
    command = (*strace, sys.executable, "-c", program, *arguments)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = sorted(line for part in folder.glob("trace.*") for line in _LINE.findall(part.read_text(errors="replace")))
    calls: dict[str, list[str]] = {}
    for _, name, parameters, result in lines:
        if named := _FILE.search(parameters):
            calls.setdefault(named[1], []).append(_described(name, parameters, result, named[2]))
    return {stem: tuple(one) for stem, one in calls.items()}


def _described(name: str, parameters: str, result: str, suffix: str) -> str:
    """Describe a call as the table does."""
    if name == "openat" and (flags := _FLAGS.search(parameters)):
        return " ".join(filter(None, ["open", suffix if suffix == ".tmp" else "", *flags.groups()]))
    if "stat" in name:
        return "stat" if '"' in parameters.split(",", maxsplit=1)[0] or "AT_FDCWD" in parameters else "fstat"
    return f"{name} {result}" if name in ("read", "write") else name


def _expected(layout: _Layout, direct: bool, number: int) -> tuple[str, ...]:
    written, read, removed = _MEASURED[layout, direct]
    return (*written, *read, *(removed if number == 0 else ()))


def _names(layout: _Layout) -> list[str]:
    """Return the names of the files of blocks without their suffix, in the order of their serials."""
    kinds: dict[_Layout, type[LMCacheFiles]] = {"lmcache": LMCacheFiles, "lmcache_fs": LMCacheAdapterFiles}
    blocks = kinds[layout]("/", _keys(layout, False))
    return [Path(blocks.path(_place(serial))).name.rsplit(".", 1)[0] for serial in range(_BLOCKS)]


def _hashes(layout: _Layout) -> list[str]:
    return [name.split("@")[3] for name in _names(layout)]


@pytest.mark.strace
@_LAYOUTS
def test_blocks_have_the_calls_of_the_library(tmp_path: Path, layout: _Layout, direct: bool) -> None:
    straced.needed()
    calls = _traced(tmp_path, _OURS, layout, str(direct))
    assert calls == {name: _expected(layout, direct, number) for number, name in enumerate(_names(layout))}


@pytest.mark.strace
@_LAYOUTS
def test_the_library_has_the_calls_that_were_measured(tmp_path: Path, layout: _Layout, direct: bool) -> None:
    """A lookup of all blocks comes before the reads; the calls on a file are the same."""
    pytest.importorskip("lmcache")
    straced.needed()
    calls = _traced(tmp_path, _LIBRARY, layout, str(direct), "write,read,remove", *_hashes(layout))
    assert calls == {name: _expected(layout, direct, number) for number, name in enumerate(_names(layout))}


@pytest.mark.parametrize(
    ("layout", "pattern"),
    [
        ("lmcache", r"meta-llama-Llama-3\.1-8B@1@0@[1-9a-f][0-9a-f]{0,15}@bfloat16\.pt"),
        ("lmcache_fs", r"meta-llama-SEP-Llama-3\.1-8B@0x01000100@0@[0-9a-f]{64}\.data"),
    ],
)
def test_names_and_sizes_are_those_of_the_library(tmp_path: Path, layout: _Layout, pattern: str) -> None:
    """The hash of the local disk backend has up to 16 digits without leading zeros, that of the adapter 64."""
    (tmp_path / "kv" / "0").mkdir(parents=True)
    blocks = kv_blocks.opened(str(tmp_path / "kv" / "0" / "0"), _keys(layout, False))
    paths = [blocks.path(_place(serial)) for serial in range(100)]
    assert all(re.fullmatch(pattern, Path(path).name) for path in paths)
    assert len(set(paths)) == 100
    blocks.write(_place(7), buffers.allocate(1, _SIZE).rows[0].data)
    (path,) = Path(blocks.folder).iterdir()
    assert path.stat().st_size == _SIZE == CACHE_MODELS["llama3_8b"].token_bytes * _TOKENS
    assert not run_outputs.foreign(tmp_path)
    blocks.close()
    assert not (tmp_path / "kv" / "0" / "0").exists()


@pytest.mark.parametrize(
    ("precision", "name"), [("fp32", "float"), ("bf16", "bfloat16"), ("fp16", "half"), ("fp8", "fp8_e4m3fn")]
)
def test_the_number_format_is_part_of_the_name(tmp_path: Path, precision: Any, name: str) -> None:
    keys = _keys("lmcache", False, model=CacheModel(1, 8, 128, precision))
    path = kv_blocks.opened(str(tmp_path / "0"), keys).path(_place(0))
    assert re.fullmatch(rf"model@1@0@[0-9a-f]+@{name}\.pt", Path(path).name)


@_LAYOUTS
def test_the_library_reads_our_files(tmp_path: Path, layout: _Layout, direct: bool) -> None:
    pytest.importorskip("lmcache")
    blocks = kv_blocks.opened(str(tmp_path / "blocks"), _keys(layout, direct))
    (row,) = buffers.allocate(1, _SIZE).rows
    for serial in range(_BLOCKS):
        row[:] = serial + 1
        blocks.write(_place(serial), row.data)
    _library(tmp_path, layout, direct, "read")


@_LAYOUTS
def test_we_read_files_of_the_library(tmp_path: Path, layout: _Layout, direct: bool) -> None:
    pytest.importorskip("lmcache")
    blocks = kv_blocks.opened(str(tmp_path / "blocks"), _keys(layout, direct))
    _library(tmp_path, layout, direct, "write")
    (row,) = buffers.allocate(1, _SIZE).rows
    for serial in range(_BLOCKS):
        row[:] = 0
        blocks.read(_place(serial), row.data)
        assert (row == serial + 1).all()
    blocks.close()
    assert not (tmp_path / "blocks").exists()


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("step", ["read", "write"])
def test_the_native_adapter_has_the_same_files(tmp_path: Path, direct: bool, step: str) -> None:
    """L2 adapter fs_native."""
    pytest.importorskip("lmcache")
    blocks = kv_blocks.opened(str(tmp_path / "blocks"), _keys("lmcache_fs", direct))
    (row,) = buffers.allocate(1, _SIZE).rows
    for serial in range(_BLOCKS if step == "read" else 0):
        row[:] = serial + 1
        blocks.write(_place(serial), row.data)
    _library(tmp_path, "lmcache_fs", direct, step, "native")
    for serial in range(_BLOCKS):
        row[:] = 0
        blocks.read(_place(serial), row.data)
        assert (row == serial + 1).all()


def _library(folder: Path, layout: _Layout, direct: bool, steps: str, adapter: str = "") -> None:
    """Let the library do its steps. adapter: another adapter with the files of the layout."""
    command = (sys.executable, "-c", _LIBRARY, adapter or layout, str(direct), steps, *_hashes(layout))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


@_LAYOUTS
def test_a_short_file_is_named(tmp_path: Path, layout: _Layout, direct: bool) -> None:
    blocks = kv_blocks.opened(str(tmp_path / "blocks"), _keys(layout, direct))
    row = buffers.allocate(1, _SIZE).rows[0]
    blocks.write(_place(0), row.data)
    os.truncate(blocks.path(_place(0)), 4096)
    with pytest.raises(ShortBlock, match="a block has 4096 bytes, but 2097152 were written"):
        blocks.read(_place(0), row.data)


def test_blocks_are_synchronised_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMCache does not call fsync. With inference.fsync, all bytes are written before."""
    sizes = []
    monkeypatch.setattr("os.fsync", lambda file: sizes.append(os.fstat(file).st_size))
    row = buffers.allocate(1, _SIZE).rows[0]
    for direct in (True, False):
        blocks = kv_blocks.opened(str(tmp_path / str(direct)), _keys("lmcache_fs", direct, fsync=True))
        blocks.write(_place(0), row.data)
    assert sizes == [_SIZE, _SIZE]


def test_blocks_that_the_library_would_not_write_with_o_direct_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = planning.Request(tmp_path / "runs", data=tmp_path, ranks_per_node=1)

    def check(*keys: str) -> str:
        made = workload.load("kv_cache_llama3_8b", keys)
        return cost.require_space(planning.make(made, site.load("local"), request).runs[-1], 1)

    monkeypatch.setattr(filesystem, "request_block", lambda _: 4 << 20)
    for layout in ("lmcache", "lmcache_fs"):
        with pytest.raises(
            ConfigError,
            match=r"LMCache uses O_DIRECT only for blocks of a multiple of 4,194,304 bytes \(f_bsize of statvfs\), and "
            r"a block has 2,097,152; change inference.block_tokens, or set inference.direct=false",
        ):
            check(f"inference.file_layout={layout}")
        assert check(f"inference.file_layout={layout}", "inference.direct=false")
        assert check(f"inference.file_layout={layout}", "inference.block_tokens=32")
    assert check("inference.file_layout=block")
