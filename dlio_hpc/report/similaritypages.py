"""Similarities as pages."""

from dlio_hpc.analysis.similarity.io_profile import Profile
from dlio_hpc.analysis.similarity.similarity import Matrix, Similarity, Yardsticks
from dlio_hpc.report import similarity_banner
from dlio_hpc.report import similarity_rows as rows
from dlio_hpc.report.figures import run_panels, similarity_plots
from dlio_hpc.report.page import Facts, Page, Section, Table


def of_pair(a: Profile, b: Profile, found: Similarity, known: Yardsticks) -> Page:
    notes = [f"{letter}: {note}" for letter, each in (("A", a), ("B", b)) for note in each.notes]
    return Page(
        title="How much alike?",
        subtitle=f"{a.title} and {b.title}",
        banner=similarity_banner.of_pair(found, known),
        facts=[Facts(letter, _facts(each)) for letter, each in (("A", a), ("B", b))],
        sections=[
            Section(
                "Measures",
                [*notes, *rows.left_out(found)],
                [Table("", list(rows.MEASURE_HEADER), rows.measures(found, known)), _words([rows.LEGEND])],
                [],
                [Table("Whole distributions", ["", ""], list(map(list, rows.distances(a, b, found)))), *_apart(found)],
            ),
            Section("Factors", [], [Table("", list(rows.FACTOR_HEADER), rows.factors(found))], [], []),
            Section("Distributions", [], [], [run_panels.inline(each) for each in similarity_plots.draw(a, b)], []),
        ],
    )


def of_matrix(made: Matrix, known: Yardsticks) -> Page:
    yard = known.pattern
    told = [rows.LEGEND, f"Same application: {rows.span(yard.kindred)}. Different ones: {rows.span(yard.strangers)}."]
    everybody = {each.title: each for each in (*(row.profile for row in made.rows), *made.columns)}
    return Page(
        title="Who is like whom?",
        subtitle=f"{len(made.rows)} programs against {len(made.columns)}",
        banner=similarity_banner.of_matrix(made),
        facts=[],
        sections=[
            Section(
                "Pattern similarity", rows.matrix_left_out(made), [_scores(made), _words(told)], [], [_cosines(made)]
            ),
            Section("Programs", [], [Table("", ["", "whose figures", "notes"], _programs(everybody))], [], []),
        ],
    )


def _facts(found: Profile) -> list[tuple[str, str]]:
    return [("Name", found.title), ("Application", found.application or "not said"), ("Figures", rows.whose(found))]


def _apart(found: Similarity) -> list[Table]:
    return [_words([rows.APART])] if rows.is_told_apart(found) else []


def _words(lines: list[str]) -> Table:
    return Table("", [""], [[line] for line in lines])


def _scores(made: Matrix) -> Table:
    names = rows.names(made.columns)
    mine = rows.names([row.profile for row in made.rows])
    lines = [
        [name, *rows.cells(row), rows.nearest(row, names), rows.own(row)]
        for name, row in zip(mine, made.rows, strict=True)
    ]
    return Table("*: nearest", ["", *names, "nearest", "its own?"], lines)


def _cosines(made: Matrix) -> Table:
    mine = rows.names([row.profile for row in made.rows])
    lines = [
        [name, *("-" if cell is None else rows.cosine(cell) for cell in row.cells)]
        for name, row in zip(mine, made.rows, strict=True)
    ]
    return Table("The paper's cosine", ["", *rows.names(made.columns)], lines)


def _programs(everybody: dict[str, Profile]) -> list[list[str]]:
    return [[title, rows.whose(each), "; ".join(each.notes)] for title, each in everybody.items()]
