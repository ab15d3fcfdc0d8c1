"""Pages in Chromium, driven by playwright and judged by axe-core."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.reports.test_pictures import BROWSER

# What phones and screens show.
WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
# The shadows of tables hide from axe what the colour of the background is.
_PLAIN = ".table { background: none !important; }"


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder for a `with` block, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def opened(width: int, scheme: str) -> Iterator[Any]:
    """Yield a tab of a browser with this width in pixels and this colour scheme, and close it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install '.[test]'")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        try:
            yield context.new_page()
        finally:
            browser.close()


def barriers(tab: Any) -> list[str]:
    """Return the serious and critical findings of axe-core on the page that a tab shows."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe-core: pip install '.[test]'")
    tab.add_style_tag(content=_PLAIN)
    violations = axe.Axe().run(tab).response["violations"]
    return [
        f"{violation['id']}: {violation['nodes'][0]['html']}"
        for violation in violations
        if violation["impact"] in ("serious", "critical")
    ]


def is_wide(tab: Any) -> bool:
    """Return whether the page scrolls sideways."""
    return bool(tab.evaluate("document.documentElement.scrollWidth > innerWidth"))


def cut_off(tab: Any) -> list[str]:
    """Return the labels of the tables that are wider than a printed page of A4 with its margins."""
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": 688, "height": 1000})
    wide = "tables.filter((table) => table.scrollWidth > table.clientWidth + 1)"
    labels: list[str] = tab.eval_on_selector_all(".table", f"tables => {wide}.map((table) => table.ariaLabel)")
    return labels
