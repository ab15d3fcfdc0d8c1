"""Banner of a similarity report: whether two programs are as similar as two runs of one application."""

from dlio_hpc.analysis.similarity.similarity import Matrix, Similarity, Yardsticks
from dlio_hpc.reports import similarity_rows
from dlio_hpc.reports.banner import Banner


def of_pair(similarity: Similarity, known: Yardsticks) -> Banner:
    """Return the banner for two programs. It compares their pattern similarity with that of published pairs: pairs of
    the same application, and pairs of different applications.
    """
    score, scores = similarity.pattern.ratio, similarity_rows.verdict(similarity)
    same, different = known.pattern.kindred, known.pattern.strangers
    if score is None or same is None or different is None:
        return Banner(
            "inconclusive", f"Too few metrics are known for both programs, so they cannot be compared ({scores})."
        )
    if score < same.least:
        return Banner(
            "bad", f"Not similar: published pairs of one application score {same.least:.2f} or more ({scores})."
        )
    if score <= different.most:
        return Banner(
            "inconclusive",
            "Undecided: among published pairs of programs, both pairs from the same application and pairs from "
            f"different applications have scores in this range ({scores}).",
        )
    return Banner("good", f"Similar: published pairs of different applications score lower ({scores}).")


def of_matrix(matrix: Matrix) -> Banner:
    """Return the banner for a matrix. Rows whose application is not among the columns are ignored. The banner is good
    if, in each of the other rows, the nearest column is the application of that row.
    """
    known = [row for row in matrix.rows if row.finds_own is not None]
    text = similarity_rows.found_own(matrix)
    if not known:
        return Banner("inconclusive", text)
    return Banner("good" if all(row.finds_own for row in known) else "bad", text)
