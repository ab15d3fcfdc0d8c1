"""Images: files that are decoded by libraries that are not ours, read in both modes through each loader."""

import io
import re
import struct
import subprocess
import sys
import warnings
import zlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec import structs
from PIL import Image as Pillow
from PIL import JpegImagePlugin

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import Size
from dlio_hpc.config import image_keys
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.image_keys import ImageShape
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Draft, Workload
from dlio_hpc.core import buffers
from dlio_hpc.core.content_check import Verification
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.formats.images import image_format, jpeg, png
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader_choice import LOADERS
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.core.loaders.pytorch import PyTorchLoader
from dlio_hpc.dataset import rank_shares, sample_layout
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.dataset.sample_order import Order
from tests.support import existing, straced, written

_KINDS = ("jpeg", "png")
_SIZES = (Sample(bytes=Size(9000)), Sample(bytes=Size(9000), stdev=Size(3000), seed=3))


def _dataset(kind: Any, sample: Sample = _SIZES[0], image: ImageShape | None = None, files: int = 5) -> Dataset:
    return Dataset(kind, files, 1, sample, image=image)


def _path(folder: Path, number: int) -> str:
    return str(folder / str(number))


def _write(folder: Path, dataset: Dataset) -> list[bytes]:
    """Write the files of a dataset. Return their contents."""
    for number in range(dataset.files):
        written.write(_path(folder, number), dataset, number)
    return [(folder / str(number)).read_bytes() for number in range(dataset.files)]


def _decoded(data: bytes) -> Any:
    """Decode an image with Pillow, without warnings and with all checksums."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Pillow.open(io.BytesIO(data)).verify()
        image = Pillow.open(io.BytesIO(data))
        image.load()
    return image


@pytest.mark.parametrize("kind", _KINDS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.integers(1024, 300_000), width=st.integers(1, 700), height=st.integers(1, 700),
    channels=st.sampled_from((1, 3)), quality=st.integers(1, 100), number=st.integers(0, 10**6),
)  # fmt: skip
def test_pillow_decodes_what_is_generated(
    tmp_path: Path, kind: str, size: int, width: int, height: int, channels: Any, quality: int, number: int
) -> None:
    asked = ImageShape(width, height, channels, quality if kind == "jpeg" else None)
    least, most = image_keys.bounds(kind, asked)
    assume(most >= 1024)
    size = min(max(size, least, 1024), most)
    dataset = _dataset(kind, Sample(bytes=Size(size)), asked, files=number + 1)
    written.write(tmp_path / "x", dataset, number)
    data = (tmp_path / "x").read_bytes()
    assert len(data) == size
    image = _decoded(data)
    assert (image.format, image.mode) == (kind.upper(), "L" if channels == 1 else "RGB")
    assert image.size == (width, height)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(90, 60), (333, 210), (17, 700), (1000, 1)])
def test_the_smallest_and_the_largest_file_of_a_picture(
    tmp_path: Path, kind: str, channels: Any, size: tuple[int, int]
) -> None:
    asked = ImageShape(*size, channels)
    least, most = image_keys.bounds(kind, asked)
    for length in (least, most):
        row = np.empty(length, np.uint8)
        {"jpeg": jpeg, "png": png}[kind].encode(row, asked, 12345)
        assert _decoded(row.tobytes()).size == size
    for length in {max(1024, least) - 1, most + 1} - {1023}:
        with pytest.raises(ValueError, match=r"image: .* do not fit into a (JPEG|PNG) file of"):
            _dataset(kind, Sample(bytes=Size(length)), asked)


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("channels", [1, 3])
def test_tensorflow_decodes_what_is_generated(tmp_path: Path, kind: str, channels: Any) -> None:
    tf = pytest.importorskip("tensorflow")
    (data, *_) = _write(tmp_path, _dataset(kind, Sample(bytes=Size(15_000)), ImageShape(150, 110, channels)))
    assert tf.io.decode_image(data).shape == (110, 150, channels)


@pytest.mark.parametrize("quality", [1, 30, 49, 50, 75, 96, 100])
def test_quality_has_the_tables_of_pillow(tmp_path: Path, quality: int) -> None:
    memory = io.BytesIO()
    Pillow.new("RGB", (64, 64)).save(memory, "JPEG", quality=quality)
    theirs = Pillow.open(memory)
    (data, *_) = _write(tmp_path, _dataset("jpeg", Sample(bytes=Size(3000)), ImageShape(64, 64, 3, quality)))
    ours = _decoded(data)
    assert isinstance(theirs, JpegImagePlugin.JpegImageFile)
    assert ours.quantization == theirs.quantization
    assert JpegImagePlugin.get_sampling(ours) == JpegImagePlugin.get_sampling(theirs), "4:2:0"


def test_without_a_picture_a_file_has_as_many_pixels_as_a_photograph(tmp_path: Path) -> None:
    for kind, bytes_per_pixel in (("jpeg", 0.6), ("png", 1.8)):
        (data, *_) = _write(tmp_path, _dataset(kind, Sample(bytes=Size(115_000))))
        width, height = _decoded(data).size
        assert width == height == int((115_000 / bytes_per_pixel) ** 0.5)


@pytest.mark.parametrize("kind", _KINDS)
def test_sizes_are_spread_as_asked_but_never_below_an_image(tmp_path: Path, kind: str) -> None:
    dataset = _dataset(kind, Sample(bytes=Size(8000), stdev=Size(2500), seed=1), ImageShape(90, 60), files=1000)
    sizes = [len(data) for data in _write(tmp_path, dataset)]
    assert sum(sizes) == 1000 * 8000
    assert min(sizes) == 1024
    assert abs(float(np.std(sizes)) - 2500) < 100
    for number in range(0, 1000, 17):
        _decoded((tmp_path / str(number)).read_bytes())


@pytest.mark.parametrize("kind", _KINDS)
def test_no_two_images_are_alike_and_none_compresses_much(tmp_path: Path, kind: str) -> None:
    files = _write(tmp_path, _dataset(kind, Sample(bytes=Size(60_000)), files=20))
    assert len({hash(data[len(data) // 2 :][:512]) for data in files}) == 20
    assert len(zlib.compress(files[0], 9)) > 0.85 * 60_000


@pytest.mark.parametrize("kind", _KINDS)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 8999), flip=st.integers(1, 255))
def test_any_byte_that_is_changed_is_found(tmp_path: Path, kind: str, at: int, flip: int) -> None:
    dataset = _dataset(kind)
    data = bytearray(_write(tmp_path, dataset)[2])
    data[at] ^= flip
    (tmp_path / "2").write_bytes(data)
    fault = FORMATS[kind].fault(_path(tmp_path, 2), dataset, 2, False)
    assert fault == f"byte {at} differs from the generated contents (sample 2)"


def _workload(dataset: Dataset, **keys: Any) -> Workload:
    return Workload("w", dataset, reader=Reader(**{"mode": "framework", "batch_size": 2, **keys}))


def _loader(made: Workload, folder: Path, steps: int) -> Any:
    paths = partial(_path, folder)
    if made.reader.loader == "tensorflow":
        pytest.importorskip("tensorflow")
        from dlio_hpc.core.loaders.tensorflow.tensorflow_loader import TensorFlowLoader

        return TensorFlowLoader(made, paths, whole=False)
    if made.reader.loader == "pytorch":
        return PyTorchLoader(made, paths)
    return NativeLoader(made, FORMATS[made.dataset.format].reader(made, paths, None), steps)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the frameworks themselves
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("sample", _SIZES, ids=["fixed", "spread"])
def test_each_loader_delivers_each_file_once(tmp_path: Path, kind: str, mode: Any, loader: Any, sample: Sample) -> None:
    dataset = _dataset(kind, sample, files=7)
    files = _write(tmp_path, dataset)
    made = _workload(dataset, mode=mode, loader=loader, verify_content="all")
    steps = rank_shares.steps_per_epoch(made, 1)
    opened, compare = _loader(made, tmp_path, steps), Verification(made, partial(_path, tmp_path))
    rows, tally = [], Tally()
    for batch in opened.epoch(Order(dataset, made.reader, 0), 0, 7, steps):
        assert compare(batch) == len(batch.rows)
        rows += [row[: place.size].tobytes() for place, row in zip(batch.places, batch.rows, strict=True)]
        tally.merge(batch.tally)
    opened.close()
    assert rows == files
    assert (tally.bytes_read, tally.overhead_bytes, tally.opens) == (sum(map(len, files)), 0, 7)
    assert (tally.preprocess_s > 0) == (mode == "framework"), "only framework mode decodes"


def _read(folder: Path, made: Workload, count: int) -> tuple[list[bytes], Tally]:
    """Read the first `count` samples."""
    reader = FORMATS[made.dataset.format].reader(made, partial(_path, folder), None)
    places = SampleLayout(made.dataset).of(np.arange(count, dtype=np.uint64))
    rows, tally = np.zeros((count, made.dataset.largest_in_memory), np.uint8), Tally()
    reader.read(places, buffers.over(rows), tally)
    reader.close()
    return [row[: place.size].tobytes() for place, row in zip(places, rows, strict=True)], tally


def test_the_time_of_decoding_has_none_of_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three files of three sizes; each request takes 2 s, and decoding 5, 7 and 11 s."""
    clock = [100.0]
    dataset = _dataset("jpeg", Sample(bytes=Size(150_000), stdev=Size(40_000)), files=3)
    files = _write(tmp_path, dataset)
    spans = iter((5.0, 7.0, 11.0))
    opened = JpegImagePlugin.JpegImageFile.load_prepare

    def slow_decoder(image: Any) -> Any:
        clock[0] += next(spans)
        return opened(image)

    def after_a_request() -> float:
        clock[0] += 2
        return clock[0]

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "load_prepare", slow_decoder)
    monkeypatch.setattr("dlio_hpc.core.io_counters.now", after_a_request)
    for module in ("formats.images.image_format", "formats.whole_file"):
        monkeypatch.setattr(f"dlio_hpc.core.{module}.now", lambda: clock[0])
    rows, tally = _read(tmp_path, _workload(dataset), 3)
    assert rows == files
    assert tally.preprocess_s == pytest.approx(23.0)
    assert sum(tally.ends) - sum(tally.starts) == pytest.approx(2.0 * tally.requests)


@pytest.mark.strace
@pytest.mark.parametrize("kind", _KINDS)
def test_framework_mode_makes_the_requests_of_pillow(tmp_path: Path, kind: str) -> None:
    """Pillow alone reads the same files under strace, as torchvision's ImageFolder opens them."""
    straced.needed()
    dataset = _dataset(kind, Sample(bytes=Size(150_000), stdev=Size(40_000)), files=6)
    _write(tmp_path, dataset)
    _, tally = _read(tmp_path, _workload(dataset), 6)
    assert Counter(tally.sizes) == Counter(_requests_of_pillow(tmp_path, [_path(tmp_path, at) for at in range(6)]))


def _requests_of_pillow(folder: Path, paths: list[str]) -> list[int]:
    program = """\
import sys
from PIL import Image
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        Image.open(file).convert("RGB")
"""
    tracer = ["strace", "-ff", "-y", "-s", "0", "-e", "trace=read", "-o", str(folder / "bare")]
    subprocess.run([*tracer, sys.executable, "-c", program, *paths], check=True)
    texts = [trace.read_text(errors="replace") for trace in folder.glob("bare.*")]
    reads = re.findall(r"<(/[^>]*)>.* = (\d+)$", "\n".join(texts), re.MULTILINE)
    return [int(count) for path, count in reads if path in paths]


@pytest.mark.strace
@pytest.mark.parametrize("size", [1, 9000, 1 << 20, (1 << 20) + 1, 5 << 19])
def test_tensorflow_loader_makes_the_requests_of_read_file(tmp_path: Path, size: int) -> None:
    """tf.io.read_file asks for 1 MiB at a time until it gets nothing."""
    pytest.importorskip("tensorflow")
    (tmp_path / "x").write_bytes(bytes(size))
    tally = Tally()
    with pytest.raises(InvalidRun):  # it is no image
        image_format._read_and_decode(str(tmp_path / "x"), tally)
    assert tally.sizes == _requests_of_tensorflow(tmp_path, str(tmp_path / "x"))


def _requests_of_tensorflow(folder: Path, path: str) -> list[int]:
    straced.needed()
    program = "import sys, tensorflow as tf\ntf.io.read_file(sys.argv[1])"
    tracer = ["strace", "-ff", "-y", "-s", "0", "-e", "trace=read,pread64", "-o", str(folder / "bare")]
    subprocess.run([*tracer, sys.executable, "-c", program, path], check=True, capture_output=True)
    texts = [trace.read_text(errors="replace") for trace in folder.glob("bare.*")]
    return [int(count) for count in re.findall(rf"<{re.escape(path)}>.* = (\d+)$", "\n".join(texts), re.MULTILINE)]


def _photographs(folder: Path) -> list[bytes]:
    """Write images of many kinds as applications write them. Return their contents in the order of their names."""
    rng = np.random.default_rng(5)
    noise = rng.integers(0, 255, (210, 333, 4), np.uint8)
    colours = Pillow.fromarray(noise[..., :3])
    profile = bytes(rng.integers(0, 255, 150_000, np.uint8))  # three segments before the frame
    images: dict[str, tuple[Any, dict[str, Any]]] = {
        "00.jpg": (colours, {}),
        "01.JPEG": (colours.convert("L"), {"quality": 95}),
        "02.jpg": (colours.convert("CMYK"), {}),
        "03.jpg": (colours, {"progressive": True, "icc_profile": profile}),
        "04.jpg": (colours, {"exif": b"Exif\0\0" + bytes(60_000)}),
        "05.jpeg": (colours, {"format": "PNG"}),  # as one of ImageNet's
        "06.png": (Pillow.fromarray(noise[..., 0]).convert("P"), {}),
        "07.png": (Pillow.fromarray(noise), {}),
        "08.png": (colours.convert("1"), {}),
        "09.png": (Pillow.fromarray(noise[..., 0].astype(np.uint16) << 8), {}),
    }
    folder.mkdir()
    contents = []
    for name, (image, keys) in images.items():
        image.save(folder / name, **keys)
        if name in ("04.jpg", "07.png"):  # as a video after the photograph, and left by a tool
            with (folder / name).open("ab") as file:
                file.write(bytes(100_000))
        contents.append((folder / name).read_bytes())
    return contents


@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("loader", ["native", "tensorflow"])
def test_existing_images_of_many_kinds(tmp_path: Path, mode: str, loader: Any) -> None:
    contents = _photographs(tmp_path / "data")
    made = existing.unscanned("jpeg", "*", mode=mode, loader=loader, batch_size=5, verify_content="none")
    made = existing.scanned(tmp_path / "data", tmp_path, made)
    assert made.dataset.samples == len(contents)
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    rows, tally = _read(tmp_path, made, len(contents))
    assert rows == contents
    assert (tally.bytes_read, tally.opens) == (sum(map(len, contents)), len(contents))
    is_read_twice = (mode, loader) == ("framework", "native")
    assert (tally.overhead_bytes > 200_000) == is_read_twice, "headers larger than a buffer"


def _png(width: int, height: int) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(10_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def _saved(kind: str) -> bytes:
    memory = io.BytesIO()
    Pillow.fromarray(np.random.default_rng(6).integers(0, 255, (200, 300, 3), np.uint8)).save(memory, kind)
    return memory.getvalue()


_JPEG, _PNG = _saved("JPEG"), _saved("PNG")


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ("byte 0: it begins with nothing",)),
        (b"GIF89a" + bytes(100), ("byte 0: it begins with 474946383961", "raw for images of other formats")),
        (b"<html>not found</html>", ("byte 0: it begins with 3c68746d6c",)),
        (_JPEG[:12], ("byte 20: the frame of a JPEG image is missing",)),
        (_JPEG[:2] + b"\xff\xe0\x00\x04ab" + bytes(50), ("byte 8: the frame of a JPEG image is missing",)),
        (_JPEG[:2] + b"\xff\xe0\x00\x00" * 2000, ("the frame of a JPEG image is missing",)),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), ("byte 8: the header of a PNG image",)),
        (_png(0, 7), ("an image of 0 x 7 pixels",)),
    ],
)  # fmt: skip
def test_files_that_are_no_images_are_refused_by_the_scan(
    tmp_path: Path, content: bytes, parts: tuple[str, ...]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jpg").write_bytes(_JPEG)
    (tmp_path / "data" / "b.jpg").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("jpeg", "*"))
    assert all(part in str(caught.value) for part in ("b.jpg", *parts))


@pytest.mark.parametrize("loader", ["native", "tensorflow"])
@pytest.mark.parametrize(
    ("content", "part"),
    [
        (_JPEG[: len(_JPEG) // 2], ""),
        (_PNG[: len(_PNG) // 2], ""),
        (_png(60_000, 60_000), "an image of 60000 x 60000 pixels is not decoded"),
        (_png(100_000, 100_000), "an image of 100000 x 100000 pixels is not decoded"),
        (_JPEG[:20] + _JPEG[:20], ""),
    ],
    ids=["half a JPEG", "half a PNG", "3600 megapixels", "10000 megapixels", "no frame"],
)
def test_damaged_and_hostile_images_are_named(tmp_path: Path, loader: Any, content: bytes, part: str) -> None:
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    dataset = _dataset("png", Sample(bytes=Size(max(1024, len(content)))), files=1)
    (tmp_path / "0").write_bytes(content)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/0") as caught:
        _read(tmp_path, _workload(dataset, loader=loader), 1)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def _with_bad_profile() -> bytes:
    """Return a PNG file with a profile of colours that ends after its name, behind the image data."""
    end = _PNG.rindex(b"IEND") - 4
    name = b"iCCPname\0"
    return _PNG[:end] + struct.pack(">I", 5) + name + struct.pack(">I", zlib.crc32(name)) + _PNG[end:]


def test_an_error_within_pillow_names_the_file(tmp_path: Path) -> None:
    content = _with_bad_profile()
    (tmp_path / "0").write_bytes(content)
    dataset = _dataset("png", Sample(bytes=Size(len(content))), files=1)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/0 is not .* index out of range"):
        _read(tmp_path, _workload(dataset), 1)


def test_an_image_that_needs_more_memory_than_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_: Any) -> None:
        raise MemoryError

    dataset = _dataset("png", files=1)
    _write(tmp_path, dataset)
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", load)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/0: no memory to decode this image; set reader.mode=posix"):
        _read(tmp_path, _workload(dataset), 1)


def test_a_batch_of_posix_mode_needs_no_decoder(tmp_path: Path) -> None:
    """An image that no library decodes is read: only its bytes are asked for."""
    content = _png(60_000, 60_000)
    (tmp_path / "0").write_bytes(content)
    dataset = _dataset("png", Sample(bytes=Size(len(content))), files=1)
    rows, _ = _read(tmp_path, _workload(dataset, mode="posix"), 1)
    assert rows == [content]


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        ({"samples_per_file": 4}, "samples_per_file: found 4, but a JPEG file holds one image"),
        ({"sample": {"shape": [8, 8]}}, "sample: set bytes to the size of a JPEG file"),
        ({"sample": {"bytes": 1000}}, "sample.bytes: found 1000, but a JPEG file has at least 1024 bytes"),
        ({"random_bits": 4}, "images are compressed already"),
        ({"compression_ratio": 2}, "images are compressed already"),
        ({"format": "png", "image": {"width": 8, "height": 8, "quality": 9}}, "image.quality=9 is for format=jpeg"),
        ({"format": "raw", "image": {"width": 8, "height": 8}}, "image is for generated files of the formats jpeg"),
        (
            {"image": {"width": 4000, "height": 3000}},
            "image: 4000 x 3000 pixels do not fit into a JPEG",
        ),
        ({"image": {"width": 8, "height": 0}}, "dataset.image.height"),
        ({"image": {"width": 70_000, "height": 8}}, "dataset.image.width"),
        ({"image": {"width": 8, "height": 8, "channels": 4}}, "dataset.image.channels"),
    ],
)
def test_keys_that_do_not_fit_are_refused(keys: dict[str, Any], part: str) -> None:
    dataset = {"format": "jpeg", "files": 4, "samples_per_file": 1, "sample": {"bytes": 9000}, **keys}
    with pytest.raises(ConfigError, match=re.escape(part)):
        Draft({"name": "w", "dataset": dataset}, "test").with_settings({})


def test_a_dataset_of_another_picture_is_another_dataset() -> None:
    from dlio_hpc.dataset import fingerprints

    plain = _dataset("jpeg")
    others = [structs.replace(plain, image=ImageShape(90, 90, 3, quality)) for quality in (None, 75, 30)]
    assert len({fingerprints.of(dataset) for dataset in (plain, *others)}) == 4


def test_sizes_of_other_formats_may_still_be_a_byte() -> None:
    """The limit of images is theirs alone."""
    sample = Sample(bytes=Size(10), stdev=Size(100), seed=1)
    sizes = SampleLayout(Dataset("raw", 1000, 1, sample)).of(np.arange(1000, dtype=np.uint64)).size
    assert sizes.min() == 1
    assert sample_layout.SampleLayout(_dataset("png", _SIZES[1])).of(np.arange(5, dtype=np.uint64)).size.min() >= 1024
