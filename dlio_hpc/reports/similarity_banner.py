"""Banner of a similarity report: whether two programs are as similar as two runs of one application."""

from dlio_hpc.analysis.similarity.similarity import Matrix, Similarity, Yardsticks
from dlio_hpc.reports import similarity_rows
from dlio_hpc.reports.banner import Banner


def of_pair(similarity: Similarity, known: Yardsticks) -> Banner:
    """Return the banner for two programs. It is based on how their pattern similarity compares with the scores of
    published pairs.
    """
    score, scores = similarity.pattern.ratio, similarity_rows.verdict(similarity)
    same, different = known.pattern.kindred, known.pattern.strangers
    if score is None or same is None or different is None:
        return Banner("inconclusive", f"Too few numbers are known for both programs to compare them ({scores}).")
    if score < same.least:
        return Banner(
            "bad", f"Not similar: published pairs of one application score {same.least:.2f} or more ({scores})."
        )
    if score <= different.most:
        return Banner(
            "inconclusive",
            f"Undecided: published pairs of one application and of different applications have such scores ({scores}).",
        )
    return Banner("good", f"Similar: published pairs of different applications score less ({scores}).")


def of_matrix(matrix: Matrix) -> Banner:
    """Return the banner for a matrix. It is based on the number of rows whose nearest column is their own
    application.
    """
    known = [row for row in matrix.rows if row.finds_own is not None]
    text = similarity_rows.found_own(matrix)
    if not known:
        return Banner("inconclusive", text)
    return Banner("good" if all(row.finds_own for row in known) else "bad", text)
