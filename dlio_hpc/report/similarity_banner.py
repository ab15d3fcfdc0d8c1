"""The banner of similarities: whether two programs are as alike as two runs of one application."""

from dlio_hpc.analysis.similarity.similarity import Matrix, Similarity, Yardsticks
from dlio_hpc.report import similarity_rows
from dlio_hpc.report.banner import Banner


def of_pair(similarity: Similarity, known: Yardsticks) -> Banner:
    """The banner by pattern similarity, compared with the scores of published pairs."""
    score, figures = similarity.pattern.ratio, similarity_rows.verdict(similarity)
    same, different = known.pattern.kindred, known.pattern.strangers
    if score is None or same is None or different is None:
        return Banner("inconclusive", f"Too few figures are known of both programs to compare them ({figures}).")
    if score < same.least:
        return Banner(
            "bad", f"Not alike: published pairs of one application score {same.least:.2f} or more ({figures})."
        )
    if score <= different.most:
        return Banner(
            "inconclusive",
            f"Published pairs of one application and of different applications have this score ({figures}).",
        )
    return Banner("good", f"Alike: published pairs of different applications score less ({figures}).")


def of_matrix(matrix: Matrix) -> Banner:
    """The banner by how many emulations are nearest to their own application."""
    known = [row for row in matrix.rows if row.finds_own is not None]
    text = similarity_rows.found_own(matrix)
    if not known:
        return Banner("inconclusive", text)
    return Banner("good" if all(row.finds_own for row in known) else "bad", text)
