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


# Places around the ends of blocks, and others.
_NEAR_EDGES = st.integers(content.BLOCK - 3000, content.BLOCK + 3000) | st.integers(0, 10**15)
_BITS = st.sampled_from([1, 5, 8])
_WORDS = st.sampled_from([100, content.BLOCK // content.WORD])


@given(_NEAR_EDGES, st.integers(0, 3000), st.integers(0, 20), _BITS, _WORDS)
def test_memory_at_any_address_is_filled(first: int, count: int, shift: int, bits: int, random_words: int) -> None:
    compressibility = content.Compressibility(bits, random_words)
    memory = np.full(shift + count + 9, 0xAA, np.uint8)
    content.fill(memory[shift : shift + count], first, compressibility)
    end = (first + count) // content.WORD * content.WORD + content.WORD
    stream = b"".join(
        content.head(at, compressibility) for at in range(first // content.WORD * content.WORD, end, content.WORD)
    )
    assert memory[shift : shift + count].tobytes() == stream[first % content.WORD :][:count]
    assert (memory[:shift] == 0xAA).all()
    assert (memory[shift + count :] == 0xAA).all()
