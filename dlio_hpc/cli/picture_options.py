"""What commands that show I/O can write beside their tables."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dlio_hpc import units
from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import PATH, option, parsed
from dlio_hpc.errors import InfrastructureError
from dlio_hpc.files import rundir

if TYPE_CHECKING:
    from dlio_hpc.analysis.log.analyze import Examined
    from dlio_hpc.report.figures.run_panels import Picture
    from dlio_hpc.report.page import Page
    from dlio_hpc.verdict.junit import Case

_NOTHING_DRAWN = "nothing was measured that a picture could show"


def _step(text: str) -> float:
    found = units.seconds(text)
    if found <= 0:
        raise ValueError("a step takes some time: 1s, 100 ms")
    return float(found)


_PAGE = (
    option("--html", type=PATH, metavar="FILE", help="A report as one page, with all pictures in it."),
    option("--figures", type=PATH, metavar="DIR", help="The pictures as SVG and PNG files."),
)
_JSON = option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
_OPTIONS = (
    *_PAGE,
    option(
        "--perfetto", type=PATH, metavar="FILE", help="A trace for ui.perfetto.dev or chrome://tracing (.json[.gz])."
    ),
    option(
        "--step",
        "step_s",
        metavar="TIME",
        callback=parsed(_step),
        help="Of the timeline in --json and --csv. Default: 200 steps.",
    ),
    _JSON,
    option("--csv", "as_csv", is_flag=True, help="All figures as CSV on stdout, one a row."),
)


def gives_pictures(function: Any) -> Any:
    """The options of such a command."""
    for add in reversed(_OPTIONS):
        function = add(function)
    return function


def gives_page(function: Any) -> Any:
    """Likewise, of a command whose pictures are of no single job."""
    for add in reversed((*_PAGE, _JSON)):
        function = add(function)
    return function


class Pictures(NamedTuple):
    """What was asked for."""

    html: Path | None
    figures: Path | None
    perfetto: Path | None

    @property
    def any(self) -> bool:
        return any(path is not None for path in self)

    def write(self, page: "Callable[[], Page]", examined: Sequence["Examined"]) -> None:
        """All of it; each file is named on stderr. The page is made if it is wanted: that takes long."""
        self._write_page(page)
        if self.figures is not None:
            with written(self.figures):
                self._save_figures(self.figures, examined)
        if self.perfetto is not None:
            from dlio_hpc.report import perfetto

            with written(self.perfetto):
                events = perfetto.write(self.perfetto, examined)
            console.say(f"trace: {self.perfetto}, {events} events")

    def write_of_study(self, page: "Callable[[], Page]", pictures: "Callable[[], Iterator[Picture]]") -> None:
        """Likewise; ConfigError where a trace is asked for, which is of a job's runs."""
        self._write_page(page)
        if self.figures is not None:
            from dlio_hpc.report.figures import run_panels

            with written(self.figures):
                count = run_panels.save(pictures(), self.figures)
            console.say(f"figures: {self.figures}" if count else f"figures: none; {_NOTHING_DRAWN}")

    def _write_page(self, page: "Callable[[], Page]") -> None:
        if self.html is not None:
            from dlio_hpc.report.page import render

            with written(self.html):
                rundir.write(self.html, render(page()).encode("utf-8"))
            console.say(f"report: {self.html}")

    def _save_figures(self, folder: Path, examined: Sequence["Examined"]) -> None:
        """Into the folder itself, or one in it for each that has pictures."""
        from dlio_hpc.report.figures import run_panels

        drawn = [each for each in examined if each.view is not None]
        if not drawn:
            console.say(f"figures: none; {_NOTHING_DRAWN}")
        used: Counter[str] = Counter()
        for each in drawn:
            name = each.title.replace("/", "-")
            used[name] += 1
            own = folder / (name if used[name] == 1 else f"{name}-{used[name]}")
            into = folder if len(drawn) == 1 else own
            assert each.view is not None
            run_panels.save(run_panels.draw(each.view), into)
            console.say(f"figures: {into}")


def write_junit(path: Path, suite: str, cases: "Sequence[Case]") -> None:
    """A suite's cases for CI systems; the file is named on stderr."""
    from dlio_hpc.verdict import junit

    with written(path):
        rundir.write(path, junit.document(suite, cases))
    console.say(f"junit: {path}")


@contextmanager
def written(path: Path) -> Iterator[None]:
    """A place to write to, whose folder is made if need be; what fails names it as the user did."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as fault:
        raise InfrastructureError(f"cannot write {path}: {fault.strerror or fault}") from fault
