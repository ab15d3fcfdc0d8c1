"""Report of similarities. It shows two programs with their factors and measures, or a matrix of programs. The banner
compares the score with the scores of published pairs.
"""

from collections.abc import Iterator, Sequence

from dlio_hpc.programs.reports import similarity_rows as rows
from dlio_hpc.programs.similarity.io_profile import Profile
from dlio_hpc.programs.similarity.similarity import USUAL, Matrix, Similarity, Yardsticks
from dlio_hpc.reports.banner import Banner, State
from dlio_hpc.reports.page import Facts, Lines, Page, Picture, Pictures, Section, Table

# Maximum number of columns of a matrix that has names as column headings. A larger matrix has numbers as column
# headings.
_NAMED = 6
# Maximum number of characters of a row's title.
_LETTERS = 20


SAME = Banner("inconclusive", "Both are the same log or job, so the scores say nothing about two programs.")


def of_pair(a: Profile, b: Profile, similarity: Similarity, known: Yardsticks, is_same: bool = False) -> Page:
    """Return the report on two programs. known: scores of published pairs of programs. is_same: whether both are the
    same log or job.
    """
    notes = [f"Note on {letter}: {note}" for letter, profile in (("A", a), ("B", b)) for note in profile.notes]
    distances = Facts("Whole distributions", list(rows.distances(a, b, similarity)))
    return Page(
        title="Similarity",
        subtitle=f"{a.title} and {b.title}",
        banner=SAME if is_same else banner_of_pair(similarity, known, " and ".join(rows.names([a, b]))),
        facts=[Facts(f"{letter}: {rows.short(profile)}", _facts(profile)) for letter, profile in (("A", a), ("B", b))],
        sections=[
            Section("Factors", [Table("", rows.FACTOR_HEADER, rows.factors(similarity))], page_order=1),
            Section(
                "Measures",
                [
                    Lines([*notes, *rows.left_out(similarity)], "yellow"),
                    Table("", rows.MEASURE_HEADER, rows.measures(similarity, known), legend=rows.LEGEND),
                    distances,
                    Lines([rows.APART] if rows.is_told_apart(similarity) else [], "dim"),
                ],
            ),
            Section("Distributions", [Pictures("", lambda: _draw(a, b))], is_detail=True, page_order=2),
        ],
    )


def _facts(profile: Profile) -> list[tuple[str, str]]:
    application = profile.application or "not known"
    return [("name", profile.title), ("program", application), ("source", rows.whose(profile))]


def _draw(a: Profile, b: Profile) -> Iterator[Picture]:
    from dlio_hpc.programs.reports import similarity_plots

    return iter(similarity_plots.draw(a, b))


def of_matrix(matrix: Matrix, known: Yardsticks) -> Page:
    """Return the report on a matrix, which compares the program of each row with the program of each column. known:
    scores of published pairs of programs.
    """
    yard = known.pattern
    published = f"Same application: {rows.span(yard.kindred)}. Different applications: {rows.span(yard.strangers)}."
    profiles = {profile.title: profile for profile in (*(row.profile for row in matrix.rows), *matrix.columns)}
    notes = [f"Note on {title}: {note}" for title, profile in profiles.items() for note in profile.notes]
    names = rows.names(matrix.columns)
    heads = names if len(names) <= _NAMED else [str(number) for number in range(1, len(names) + 1)]
    numbers = [] if heads == names else [f"{head:>2}  {name}" for head, name in zip(heads, names, strict=True)]
    programs = [[title, rows.whose(profile)] for title, profile in profiles.items()]
    return Page(
        title="Similarity of programs",
        subtitle=f"{len(matrix.rows)} programs against {len(matrix.columns)}",
        banner=banner_of_matrix(matrix),
        facts=[],
        sections=[
            Section(
                "Pattern similarity; *: nearest",
                [
                    _scores(matrix, heads),
                    Lines(numbers),
                    Lines([*rows.matrix_left_out(matrix), *notes], "yellow"),
                    Lines([rows.LEGEND, published], "dim"),
                ],
            ),
            Section("Cosine of the DLIO paper", [_cosines(matrix, heads)], is_detail=True),
            Section("Programs", [Table("", ["program", "source"], programs)], is_detail=True),
        ],
        conclusion=rows.found_own(matrix),
    )


def _scores(matrix: Matrix, heads: Sequence[str]) -> Table:
    titles = [_shortened(title) for title in rows.names([row.profile for row in matrix.rows])]
    cells = [
        [title, *rows.cells(row), rows.nearest(row, heads), rows.own(row)]
        for title, row in zip(titles, matrix.rows, strict=True)
    ]
    return Table("", ["", *heads, "nearest", "is own"], cells)


def _shortened(title: str) -> str:
    """Return the title. If it is too long, return only its end, because many titles begin alike."""
    return title if len(title) <= _LETTERS else f"...{title[3 - _LETTERS :]}"


def _cosines(matrix: Matrix, heads: Sequence[str]) -> Table:
    titles = rows.names([row.profile for row in matrix.rows])
    cells = [
        [title, *("-" if cell is None else rows.cosine(cell) for cell in row.cells)]
        for title, row in zip(titles, matrix.rows, strict=True)
    ]
    return Table("", ["", *heads], cells)


def banner_of_pair(similarity: Similarity, known: Yardsticks, programs: str = "") -> Banner:
    """Return the banner for two programs: their pattern similarity, and the ranges of the pattern similarity of
    published pairs. The banner is good under two conditions: the score is above the scores of all published pairs of
    different applications, and it is as high as is usual for two runs of one application. programs: names of both
    programs.
    """
    score, others = similarity.pattern.ratio, rows.other_scores(similarity)
    same, different = known.pattern.kindred, known.pattern.strangers
    if score is None or same is None or different is None:
        return Banner(
            "inconclusive", f"Too few metrics are known for both programs, so they cannot be compared ({others})."
        )
    one, two = (f"{scores.least:.3f} to {scores.most:.3f}" for scores in (same, different))
    state: State = "inconclusive"
    if score < same.least:
        state, meaning = "bad", f"is below the scores of all published pairs of runs of one application ({one})"
    elif score <= different.most:
        meaning = (
            f"is not conclusive: published pairs of one application have {one}, median {same.median:.3f}; pairs of "
            f"different applications {two}, median {different.median:.3f}"
        )
    elif score < USUAL:
        meaning = (
            f"is above the scores of published pairs of different applications ({two}), but below {USUAL:.2f}, which "
            f"two runs of one application usually reach (published pairs: {one}, median {same.median:.3f})"
        )
    else:
        state = "good"
        meaning = (
            f"is above the scores of published pairs of different applications ({two}); pairs of one application "
            f"have {one}"
        )
    subject = f"{programs}: pattern similarity" if programs else "Pattern similarity"
    return Banner(state, f"{subject} {score:.3f} {meaning}. Other scores: {others}.")


def banner_of_matrix(matrix: Matrix) -> Banner:
    """Return the banner for a matrix. Rows whose application is not among the columns are ignored. The banner is good
    if, in each of the other rows, the nearest column is the application of that row.
    """
    known = [row for row in matrix.rows if row.finds_own is not None]
    text = rows.found_own(matrix)
    if not known:
        return Banner("inconclusive", text)
    return Banner("good" if all(row.finds_own for row in known) else "bad", text)
