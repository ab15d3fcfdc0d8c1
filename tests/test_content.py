import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.core import content


def _bytes(first: int, count: int) -> bytes:
    return b"".join(bytes(piece) for piece in content.pieces(first, count))


@given(st.integers(0, 5 * content.BLOCK), st.integers(0, 2 * content.BLOCK), st.integers(0, 2 * content.BLOCK))
def test_the_stream_is_one_wherever_it_is_entered(first: int, count: int, skip: int) -> None:
    whole = _bytes(first, count)
    assert len(whole) == count
    assert whole[skip:] == _bytes(first + skip, max(0, count - skip))


def test_no_two_pages_are_alike() -> None:
    pages = np.frombuffer(_bytes(0, 16 * content.BLOCK), np.uint8).reshape(-1, 4096)
    assert len({page.tobytes() for page in pages}) == len(pages)
    far = np.frombuffer(_bytes(10**15 // content.BLOCK * content.BLOCK, content.BLOCK), np.uint8).reshape(-1, 4096)
    assert not {page.tobytes() for page in far} & {page.tobytes() for page in pages}


def test_it_does_not_compress() -> None:
    import zstandard

    data = _bytes(3 * content.BLOCK, content.BLOCK)
    assert len(zstandard.compress(data)) > len(data)


@given(st.integers(0, 10**18))
def test_a_sample_is_known_by_its_first_bytes(first: int) -> None:
    head = content.head(first)
    assert 1 <= len(head) <= 8
    assert head == _bytes(first, len(head))
