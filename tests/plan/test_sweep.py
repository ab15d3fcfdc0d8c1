"""Lists and ranges of values are read as users write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.plan import sweep


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("reader.transfer_size=64KiB,256KiB,1MiB", ("64 KiB", "256 KiB", "1 MiB")),
        ("reader.transfer_size=64KiB..16MiB*4", ("64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB")),
        ("reader.transfer_size=1000,1 MB", ("1000 B", "1 MB")),
        ("reader.read_threads=1..64*2", ("1", "2", "4", "8", "16", "32", "64")),
        ("reader.read_threads=1..100*3", ("1", "3", "9", "27", "81")),
        ("reader.read_threads=3..6", ("3", "4", "5", "6")),
        ("reader.read_threads=1,8..10", ("1", "8", "9", "10")),
        ("train.epochs=5..20+5", ("5", "10", "15", "20")),
        ("compute.time=10ms..1s*10", ("10 ms", "100 ms", "1 s")),
        ("compute.time=0..0.1+0.05", ("0 s", "50 ms", "100 ms")),
        ("dataset.chunk=null,2KiB,[1, 64, 64]", ("null", "2 KiB", "1x64x64")),
        ("dataset.compression=none,gzip", ("none", "gzip")),
        ("reader.direct=true,false", ("true", "false")),
        ("site.layout.stripe_size=1MiB..4MiB*2", ("1 MiB", "2 MiB", "4 MiB")),
        ("dataset.sample={bytes: 1 KiB},{shape: [4, 4]}", ("bytes: 1 KiB", "shape: 4x4")),
    ],
)
def test_values_are_read_by_the_type_of_their_key(text: str, labels: tuple[str, ...]) -> None:
    assert sweep.axis(text).labels == labels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reader.transfer_size", "write key=value,value,..."),
        ("reader.transfer_size=", "write key=value,value,..."),
        ("=1,2", "write key=value,value,..."),
        ("reader.read_threads=8..1", "the range 8..1 never ends; write the smaller value first: 1..8"),
        ("reader.read_threads=0..8*2", "the range 0..8*2 never ends"),
        ("reader.read_threads=1..8*1", "the range 1..8*1 never ends; a factor (*) must be above 1"),
        ("reader.read_threads=1..8*", "'1..8*' is not a range"),
        ("reader.read_threads=1..x", "'1..x' is not a range"),
        ("reader.read_threads=1..1e9", "has more than 10000 values"),
        ("reader.read_threads=[1", "not valid YAML"),
        ("site.depth=1,2", "To vary another key of the site, submit one study for each value"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep.axis(text)
    assert message in str(caught.value)


@given(st.integers(1, 2**40), st.integers(0, 12), st.integers(2, 9))
def test_a_range_of_sizes_is_what_it_says(first: int, more: int, factor: int) -> None:
    last = min(first * factor**more, 2**60)
    axis = sweep.axis(f"reader.transfer_size={first}..{last}*{factor}")
    wanted = [first * factor**place for place in range(1 + int(math.log(last / first, factor) + 1e-9))]
    assert [units.size(value) for value in axis.values] == wanted
    assert axis.numbers == tuple(map(float, wanted))


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=9, unique=True))
def test_a_label_means_the_value(sizes: list[int]) -> None:
    axis = sweep.axis_of("reader.transfer_size", sizes, "test")
    assert [units.size(label) for label in axis.labels] == sizes


def test_every_combination_or_side_by_side() -> None:
    axes = [sweep.axis("reader.read_threads=1,2"), sweep.axis("reader.direct=true,false")]
    assert [tuple(point.values()) for point in sweep.settings(axes, zipped=False)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [tuple(point.values()) for point in sweep.settings(axes, zipped=True)] == [(0, 0), (1, 1)]
    assert list(sweep.settings([], zipped=False)) == [{}]


def test_the_same_again_is_refused() -> None:
    for texts, zipped, message in (
        (("reader.read_threads=1,2,1",), False, "reader.read_threads=1: the value is given twice"),
        (("reader.transfer_size=1MiB,1024KiB",), False, "reader.transfer_size=1 MiB: the value is given twice"),
        (("reader.read_threads=1", "reader.read_threads=2"), False, "give all its values in one list"),
        (
            ("reader.read_threads=1,2", "reader.batch_size=1"),
            True,
            "reader.read_threads has 2, reader.batch_size has 1",
        ),
        (
            ("reader.read_threads=1,2", "reader={},{direct: true}"),
            False,
            "-P reader would replace the value of -P reader.read_t",
        ),
        (("reader.read_threads=1,1", "reader.batch_size=4,4"), True, "reader.batch_size=4: the value is given twice"),
    ):
        with pytest.raises(ConfigError) as caught:
            list(sweep.settings(list(map(sweep.axis, texts)), zipped))
        assert message in str(caught.value)
    pairs = [sweep.axis("dataset.compression=none,gzip,gzip"), sweep.axis("dataset.level=null,1,2")]
    assert len(list(sweep.settings(pairs, zipped=True))) == 3
