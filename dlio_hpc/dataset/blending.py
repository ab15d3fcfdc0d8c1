"""Order of samples in a blend: files form groups, and samples are taken from the groups in proportion to their weights.

The next sample is taken from the group that lags most behind its weight, as in Megatron-LM's BlendedDataset. The
sequence of groups repeats after 10,000 samples, so that the sample at any position can be computed. In these samples,
each group has its weight, rounded to ten-thousandths.

An epoch has as many samples as the dataset. A group that gives more samples than it has repeats them, in another order.
Of the other groups, only some samples are read.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.dataset_keys import BLEND_STEPS, Dataset
from dlio_hpc.dataset import sample_index
from dlio_hpc.dataset.rank_shares import share
from dlio_hpc.dataset.sample_order import Indices, mix_all, permute

Numbers = npt.NDArray[np.int64]


class Turns(NamedTuple):
    """Groups from which samples are taken in turn, until the sequence repeats. counts: samples of each group. groups:
    group of each sample. earlier: number of earlier samples of the same group, for each sample.
    """

    counts: Numbers
    groups: Numbers
    earlier: Numbers


@lru_cache(8)
def turns(weights: tuple[float, ...]) -> Turns:
    """Return the sequence of groups for some weights."""
    counts = _rounded(weights)
    shares = [float(weight / np.sum(weights)) for weight in weights]  # as Megatron-LM rounds them
    taken = [0] * len(weights)
    groups, earlier = [], []
    for step in range(BLEND_STEPS):
        at = max(step, 1)
        open_groups = (group for group, count in enumerate(counts) if taken[group] < count)
        chosen = max(open_groups, key=lambda group: shares[group] * at - taken[group])
        groups.append(chosen)
        earlier.append(taken[chosen])
        taken[chosen] += 1
    return Turns(*(np.array(values, np.int64) for values in (counts, groups, earlier)))


def _rounded(weights: tuple[float, ...]) -> list[int]:
    """Return whole numbers in proportion to weights, with the sum BLEND_STEPS. Largest remainders are rounded up."""
    exact = [weight * BLEND_STEPS / sum(weights) for weight in weights]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda group: counts[group] - exact[group])
    for group in by_remainder[: BLEND_STEPS - sum(counts)]:
        counts[group] += 1
    return counts


class Blend:
    """Order of the samples of a blend. keys: keys of the random order; None to take the samples of each group in the
    order of their numbers.
    """

    def __init__(self, dataset: Dataset, weights: tuple[float, ...], keys: list[np.uint64] | None) -> None:
        index = sample_index.of(dataset)
        files = [share(dataset.files, len(weights), group)[0] for group in range(len(weights) + 1)]
        starts = [file * dataset.samples_per_file if index is None else int(index.starts[file]) for file in files]
        self._starts = np.array(starts, np.int64)
        self._sizes = np.diff(self._starts)
        self._keys = keys
        self._turns = turns(weights)

    def samples(self, first: int, last: int) -> Indices:
        """Return the numbers of the samples at positions `first` to `last` (exclusive) of an epoch."""
        rounds, steps = np.divmod(np.arange(first, last, dtype=np.int64), BLEND_STEPS)
        groups = self._turns.groups[steps]
        passes, within = np.divmod(
            rounds * self._turns.counts[groups] + self._turns.earlier[steps], self._sizes[groups]
        )
        if self._keys is not None:
            for group in range(len(self._sizes)):
                chosen = np.flatnonzero(groups == group)
                if len(chosen):
                    number = (passes[chosen] * len(self._sizes) + group).astype(np.uint64)
                    keys = [mix_all(number + key) for key in self._keys]
                    within[chosen] = permute(within[chosen].astype(np.uint64), int(self._sizes[group]), keys)
        return (self._starts[groups] + within).astype(np.uint64)
