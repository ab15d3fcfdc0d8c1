"""Blends of datasets: proportions of the groups, the sequence of groups, and which samples are repeated."""

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import Size
from dlio_hpc.config import workload
from dlio_hpc.config.dataset_keys import BLEND_STEPS, Dataset, Documents, Sample
from dlio_hpc.config.reader_keys import Reader, Shuffle
from dlio_hpc.dataset import blending, fingerprints
from dlio_hpc.dataset.sample_order import Order

_WEIGHTS = st.lists(st.floats(0.01, 50), min_size=2, max_size=7).map(tuple)
_KEYS = ("dataset.format=indexed", "dataset.blend=[0.6, 0.4]", "dataset.files=4", "reader.shuffle={samples: false}")


def _dataset(weights: tuple[float, ...], files: int = 7, per_file: int = 50) -> Dataset:
    sample = Sample(shape=(9,), dtype="int32")
    return Dataset("indexed", files, per_file, sample, documents=Documents(30, 9), blend=weights)


def _order(dataset: Dataset, shuffled: bool = True, epoch: int = 0, **keys: Any) -> Order:
    return Order(dataset, Reader(shuffle=Shuffle(files=shuffled, samples=shuffled, **keys)), epoch)


def _greedy(weights: tuple[float, ...], size: int) -> list[int]:
    """Groups as the rule of Megatron-LM gives them: the largest error, and the first group of equal ones."""
    shares, taken, groups = np.array(weights) / np.sum(weights), np.zeros(len(weights)), []
    for step in range(size):
        group = int(np.argmax(shares * max(step, 1) - taken))
        groups.append(group)
        taken[group] += 1
    return groups


@pytest.mark.parametrize("weights", [(0.6, 0.3, 0.1), (0.5, 0.5), (0.33, 0.12, 0.02, 0.53), (3.0, 1.0)])
def test_groups_are_in_the_order_of_megatron(weights: tuple[float, ...]) -> None:
    assert blending.turns(weights).groups[:9000].tolist() == _greedy(weights, 9000)


@settings(deadline=None, max_examples=30)
@given(_WEIGHTS)
def test_groups_have_their_weights(weights: tuple[float, ...]) -> None:
    made = blending.turns(weights)
    shares = np.array(weights) / sum(weights)
    assert made.counts.sum() == BLEND_STEPS
    assert (abs(made.counts / BLEND_STEPS - shares) <= 1 / BLEND_STEPS).all()
    assert np.bincount(made.groups, minlength=len(weights)).tolist() == made.counts.tolist()
    for group in range(len(weights)):
        assert made.earlier[made.groups == group].tolist() == list(range(made.counts[group]))
        ahead = np.cumsum(made.groups == group) - shares[group] * np.arange(1, BLEND_STEPS + 1)
        assert abs(ahead).max() < len(weights), "no group is far from its weight at any position"


@pytest.mark.parametrize("shuffled", [True, False])
def test_an_epoch_has_samples_in_proportion_to_weights(shuffled: bool) -> None:
    dataset = _dataset((0.6, 0.3, 0.1), files=7, per_file=5000)
    samples = _order(dataset, shuffled).samples(0, dataset.samples)
    assert len(samples) == dataset.samples == 35_000
    bounds = [0, 2 * 5000, 4 * 5000, 7 * 5000]  # 7 files in three groups
    counts = np.histogram(samples, bounds)[0] / len(samples)
    assert counts == pytest.approx([0.6, 0.3, 0.1], abs=1e-4)
    of_group = [samples[(samples >= first) & (samples < last)] for first, last in pairwise(bounds)]
    repeats = [sorted(Counter(Counter(group.tolist()).values())) for group in of_group]
    assert repeats == [[2, 3], [1, 2], [1]], "21000 samples of 10000, 10500 of 10000, and 3500 of 15000"
    is_sorted = (np.diff(of_group[2].astype(np.int64)) > 0).all()
    assert is_sorted != shuffled


def test_repeated_samples_come_in_another_order() -> None:
    dataset = _dataset((0.9, 0.1), files=2, per_file=40)
    first = [sample for sample in _order(dataset).samples(0, 80).tolist() if sample < 40]
    assert sorted(first[:32]) != sorted(first[40:72])
    assert set(first[:40]) == set(range(40))
    assert first[:32] != first[40:72]
    assert _order(dataset, epoch=1).samples(0, 80).tolist() != _order(dataset).samples(0, 80).tolist()
    assert _order(dataset, seed=1).samples(0, 80).tolist() != _order(dataset).samples(0, 80).tolist()
    assert _order(dataset).samples(0, 80).tolist() == _order(dataset).samples(0, 80).tolist()


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 349), st.integers(0, 349), st.booleans())
def test_any_rank_knows_any_stretch(first: int, last: int, shuffled: bool) -> None:
    order = _order(_dataset((5, 2, 3)), shuffled)
    assert order.samples(first, last).tolist() == order.samples(0, 350)[first : max(first, last)].tolist()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("dataset.format=raw",), "blend is for format=indexed, not raw"),
        (("dataset.files=1",), "2 weights for 1 file"),
        (("dataset.blend=[1, 0.00001]",), "smallest weight is less than 1/10000"),
        (("dataset.blend=[1]",), "blend"),
        (("reader.shuffle={files: true, samples: false}",), "set shuffle.files and shuffle.samples both"),
        (("reader.interleave=2",), "a blend takes one sample at a time"),
        (("reader.load=memory",), "a blend repeats samples"),
        (("dataset.sample={bytes: 1000, stdev: 100}",), "needs samples of one size"),
    ],
)
def test_keys_that_do_not_fit_a_blend_are_refused(keys: tuple[str, ...], words: str) -> None:
    workload.load("demo", _KEYS)
    with pytest.raises(ConfigError, match=words):
        workload.load("demo", (*_KEYS, *keys))


def test_a_blend_reads_the_files_of_a_dataset_without_one() -> None:
    dataset = _dataset((0.6, 0.4))
    assert fingerprints.of(dataset) == fingerprints.of(structs.replace(dataset, blend=None))
    assert fingerprints.of(dataset) != fingerprints.of(structs.replace(dataset, documents=Documents(31, 9)))


def test_a_blend_of_sequences_may_have_any_sample_of_one_size() -> None:
    assert Dataset("indexed", 2, 3, Sample(bytes=Size(10)), blend=(1, 2)).blend == (1, 2)
