"""Pictures of a page as SVG and PNG files."""

import io
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_hpc.reports import page
from dlio_hpc.reports.page import Page, Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_DATES = dict.fromkeys(("Date", "Creator", "Format", "Type"))


def save(subject: Page, folder: Path) -> list[Path]:
    """Write STEM.svg and STEM.png for each picture into `folder`. If several logs or runs have pictures, each gets a
    subdirectory. Return the directories that were written to.
    """
    drawn = [(group.name, pictures) for group in page.pictures(subject) if (pictures := list(group.draw()))]
    names = list(dict.fromkeys(name for name, _ in drawn))
    for name in names:
        pictures = [picture for owner, group_pictures in drawn if owner == name for picture in group_pictures]
        _save(pictures, _folder(folder, name) if len(names) > 1 else folder)
    return [_folder(folder, name) if len(names) > 1 else folder for name in names]


def _folder(folder: Path, name: str) -> Path:
    return folder / name.replace("/", "-") if name else folder


def _save(pictures: list[Picture], folder: Path) -> None:
    from dlio_hpc.reports.figures import canvas

    folder.mkdir(parents=True, exist_ok=True)
    stems = Counter(picture.stem for picture in pictures)
    for number, picture in enumerate(pictures, 1):
        stem = picture.stem if stems[picture.stem] == 1 else f"{picture.stem}-{number}-{_slug(picture.title)}"
        (folder / f"{stem}.svg").write_text(svg(picture.figure), encoding="utf-8")
        with canvas.style():
            picture.figure.savefig(folder / f"{stem}.png", dpi=150, metadata={"Software": None})


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:60].strip("-")


def svg(figure: "Figure") -> str:
    """Return the SVG element of a figure. Equal figures give equal text, because it contains no date and no reference
    to other files.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    from dlio_hpc.reports.figures import canvas

    file = io.StringIO()
    figure.set_dpi(150)
    with canvas.style():  # savefig() would draw twice
        FigureCanvasSVG(figure).print_svg(file, metadata=_NO_DATES)  # type: ignore[no-untyped-call]
    text = file.getvalue()
    # Coordinates are in points; two decimals are precise enough.
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text[text.index("<svg") :])
