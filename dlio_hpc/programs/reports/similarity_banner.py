"""Banner of a similarity report: the pattern similarity of two programs among that of published pairs."""

from dlio_hpc.programs.reports import similarity_rows
from dlio_hpc.programs.similarity.similarity import USUAL, Matrix, Similarity, Yardsticks
from dlio_hpc.reports.banner import Banner, State


def of_pair(similarity: Similarity, known: Yardsticks) -> Banner:
    """Return the banner for two programs: their pattern similarity, and the ranges of that of published pairs. It is
    good only if the score is above that of all published pairs of different applications, and as high as usual for two
    runs of one application.
    """
    score, others = similarity.pattern.ratio, similarity_rows.other_scores(similarity)
    same, different = known.pattern.kindred, known.pattern.strangers
    if score is None or same is None or different is None:
        return Banner(
            "inconclusive", f"Too few metrics are known for both programs, so they cannot be compared ({others})."
        )
    one, two = (f"{scores.least:.3f} to {scores.most:.3f}" for scores in (same, different))
    state: State = "inconclusive"
    if score < same.least:
        state, meaning = "bad", f"is below that of published pairs of one application ({one})"
    elif score <= different.most:
        meaning = (
            f"is not conclusive: published pairs of one application have {one}, median {same.median:.3f}; pairs of "
            f"different applications {two}, median {different.median:.3f}"
        )
    elif score < USUAL:
        meaning = (
            f"is above that of published pairs of different applications ({two}), but below {USUAL:.2f}, which two "
            f"runs of one application usually reach (published pairs: {one}, median {same.median:.3f})"
        )
    else:
        state = "good"
        meaning = f"is above that of published pairs of different applications ({two}); pairs of one have {one}"
    return Banner(state, f"Pattern similarity {score:.3f} {meaning}. Other scores: {others}.")


def of_matrix(matrix: Matrix) -> Banner:
    """Return the banner for a matrix. Rows whose application is not among the columns are ignored. The banner is good
    if, in each of the other rows, the nearest column is the application of that row.
    """
    known = [row for row in matrix.rows if row.finds_own is not None]
    text = similarity_rows.found_own(matrix)
    if not known:
        return Banner("inconclusive", text)
    return Banner("good" if all(row.finds_own for row in known) else "bad", text)
