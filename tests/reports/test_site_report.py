"""The site of all jobs: made page by page, never half, and shown by a web server to every reader."""

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from dlio_hpc.base import units
from dlio_hpc.files.archive import SUFFIX
from dlio_hpc.reports import html_page, web_site
from dlio_hpc.verdict import baselines, history
from tests.conftest import Run
from tests.reports.test_banners import _pages as documents
from tests.reports.test_pictures import browser
from tests.support import browsing, facilities, nights
from tests.support.places import LOGS

# The last night is over for less than a day.
LAST = int(units.seconds_between(nights.day(0), units.utc_now()) // 86400)


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    return facilities.facility(tmp_path / "facility", LAST)


def _links(folder: Path) -> dict[str, set[str]]:
    """Return the addresses to which each page of a site links."""
    pages = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}
    return {name: set(re.findall('href="([^"]*)"', text)) for name, text in pages.items()}


def test_each_job_and_suite_has_a_page_and_links_lead_to_files(archives: Path, run: Run, tmp_path: Path) -> None:
    done = run("dlio-hpc", "site-report", "web", "--archive", archives)
    assert (done.code, done.err.splitlines()[-1]) == (0, "web/index.html: 6 pages made, 0 up to date")
    jobs = {path.name.removesuffix(SUFFIX) for path in archives.glob(f"*{SUFFIX}")}
    assert {path.stem for path in (tmp_path / "web" / "jobs").iterdir()} == jobs
    assert {path.stem for path in (tmp_path / "web" / "studies").iterdir()} == {job[:-2] for job in jobs}
    for name, addresses in _links(tmp_path / "web").items():
        for address in addresses:
            assert not re.match("[a-z]+:|/", address), "relative"
            if not address.startswith("#"):
                assert (tmp_path / "web" / name).parent.joinpath(unquote(address)).is_file(), address
    listed = _links(tmp_path / "web")["index.html"]
    assert {f"jobs/{job}.html" for job in jobs} <= listed
    index = (tmp_path / "web" / "index.html").read_text()
    assert all(entry.job in index.replace("<wbr>", "") for entry in history.entries(archives))
    # The jobs have fixed dates, so it depends on today's date whether their newest night was the last one.
    assert "Last night " in index or "That night: " in index


def test_only_pages_with_a_newer_archive_or_baseline_are_made_anew(archives: Path, run: Run, tmp_path: Path) -> None:
    def made() -> list[str]:
        done = run("dlio-hpc", "site-report", "web", "--archive", archives, "--json")
        assert done.code == 0, done.err
        return [Path(page).parent.name for page in json.loads(done.out)["written"]]

    assert sorted(made()) == ["jobs"] * 3 + ["studies"] * 3
    assert made() == []
    facilities.make_new(next(archives.glob(f"nightly*{SUFFIX}")))
    assert sorted(made()) == ["jobs", "studies"]
    baselines.accept(archives, history.entries(archives)[-1], "new", force=True)
    assert made() == ["studies"] * 3
    last = run("dlio-hpc", "site-report", "web", "--archive", archives, "--anew").err.splitlines()[-1]
    assert last == "web/index.html: 6 pages made, 0 up to date"


def test_an_archive_that_cannot_be_read_is_listed_and_stops_nothing(archives: Path, run: Run, tmp_path: Path) -> None:
    path = next(archives.glob(f"checkpoints*{SUFFIX}"))
    path.write_bytes(path.read_bytes()[:-50])
    (archives / f"new{SUFFIX}").write_bytes(b"no archive")
    done = run("dlio-hpc", "site-report", "web", "--archive", archives)
    assert done.code == 3
    assert f"dlio-hpc: new: {archives}/new{SUFFIX}" in done.err
    assert "4 pages made" in done.err
    index = (tmp_path / "web" / "index.html").read_text().replace("<wbr>", "")
    assert re.search(r'class="banner bad".*Cannot be read: checkpoints\S+-1, new[.]', index)
    assert "Archives that cannot be read" in index
    assert "judged without the criteria and tolerance of a suite: " in index


def test_the_group_of_the_web_server_may_read_it(archives: Path, run: Run, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert run("dlio-hpc", "site-report", "new/web", "--quiet", "--archive", archives).code == 0
    finally:
        os.umask(before)
    for path in (tmp_path / "new" / "web").rglob("*"):
        assert path.stat().st_mode & 0o077 == (0o050 if path.is_dir() else 0o040), path


def test_a_foreign_file_is_not_replaced_and_nothing_is_removed(archives: Path, run: Run, tmp_path: Path) -> None:
    web = tmp_path / "web"
    (web / "jobs").mkdir(parents=True)
    (web / "index.html").write_text("<h1>ours</h1>")
    (web / "jobs" / "notes.html").write_text("notes")
    done = run("dlio-hpc", "site-report", "web", "--quiet", "--archive", archives)
    assert done.code == 2
    assert "web/index.html was not written by dlio-hpc site-report; move it" in done.err
    assert (web / "index.html").read_text() == "<h1>ours</h1>"
    (web / "index.html").unlink()
    assert run("dlio-hpc", "site-report", "web", "--quiet", "--archive", archives).code == 0
    for path in archives.glob(f"weekend*{SUFFIX}"):
        path.unlink()
    assert run("dlio-hpc", "site-report", "web", "--quiet", "--archive", archives).code == 0
    assert list((web / "jobs").glob("weekend*")), "the page of an archive that is gone stays"
    assert (web / "jobs" / "notes.html").read_text() == "notes"


def test_what_is_killed_half_way_is_a_site_and_is_finished_later(
    archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web, render = tmp_path / "web", html_page.render
    web_site.make(web, archives, False, lambda _: None)
    index = (web / "index.html").read_text()
    calls = iter(range(100))

    def killed(*arguments: Any) -> str:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return render(*arguments)

    monkeypatch.setattr(html_page, "render", killed)
    with pytest.raises(KeyboardInterrupt):
        web_site.make(web, archives, True, lambda _: None)
    assert (web / "index.html").read_text() == index
    assert all(text.rstrip().endswith("</html>") for text in (path.read_text() for path in web.rglob("*.html")))
    assert not list(web.rglob(".*"))
    monkeypatch.undo()
    assert len(web_site.make(web, archives, True, lambda _: None).written) == 6


def test_a_folder_that_cannot_be_made_is_named(archives: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "web").write_text("a file")
    done = run("dlio-hpc", "site-report", "web", "--archive", archives)
    assert (done.code, "web is a file; give a folder" in done.err) == (2, True), done.err
    (tmp_path / "closed").symlink_to("/proc/none")
    done = run("dlio-hpc", "site-report", "closed/web", "--archive", archives)
    assert (done.code, "cannot create closed" in done.err) == (6, True), done.err


@pytest.mark.parametrize(("codes", "code"), [((), 0), ((6, 3), 3), ((6,), 6), ((3, 70), 70)])
def test_the_most_severe_fault_is_the_exit_code(codes: tuple[int, ...], code: int) -> None:
    assert web_site.SiteMade((), 0, (), codes).exit_code == code


def test_addresses_are_quoted(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "a #b.html").write_text("")
    address = web_site.addresses(tmp_path)
    assert (address("a #b"), address("absent"), address("../jobs/a #b")) == ("jobs/a%20%23b.html", "", "")


@browser
@pytest.mark.parametrize("scheme", browsing.SCHEMES)
@pytest.mark.parametrize("width", browsing.WIDTHS)
def test_a_web_server_shows_the_site_to_every_reader(archives: Path, tmp_path: Path, width: int, scheme: str) -> None:
    """All links resolve, the console is silent, axe-core has no serious finding, and pages print."""
    web_site.make(tmp_path / "web", archives, False, lambda _: None)
    complaints: list[str] = []
    with browsing.served(tmp_path / "web") as address, browsing.opened(width, scheme) as tab:
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("request", lambda request: complaints.extend([request.url] * (not request.url.startswith(address))))
        waiting, visited = [address], set()
        while waiting:
            url = waiting.pop()
            visited.add(url)
            assert tab.goto(url).status == 200, url
            assert not browsing.is_wide(tab), url
            assert browsing.barriers(tab) == [], url
            hrefs = tab.eval_on_selector_all("a", "links => links.map((link) => link.href.split('#')[0])")
            waiting += dict.fromkeys(href for href in hrefs if href not in visited and href not in waiting)
        assert len(visited) == 6 + 2, "the dashboard is there under two addresses"
        assert tab.pdf().startswith(b"%PDF")
    assert complaints == []


@browser
def test_every_kind_of_page_has_no_barrier(run: Run, tmp_path: Path) -> None:
    pages = {name: html_page.render(made) for name, made in documents(tmp_path).items()}
    logs = [LOGS / "mpi4_npz.darshan", LOGS / "mpi4_dxtpartial.darshan"]
    assert run("dlio-hpc", "similarity", *logs, "--html", "similarity.html").code == 0
    run("dlio-hpc", "darshan", "--summary", *logs, "--html", "summary.html")
    for name, html in pages.items():
        (tmp_path / f"{name}.html").write_text(html)
    kinds = sorted([*pages, "similarity", "summary"])
    for width, scheme in zip(browsing.WIDTHS, browsing.SCHEMES, strict=True):  # colours do not depend on the width
        with browsing.opened(width, scheme) as tab:
            for kind in kinds:
                tab.goto((tmp_path / f"{kind}.html").as_uri())
                assert (kind, browsing.barriers(tab), browsing.is_wide(tab)) == (kind, [], False)


@browser
def test_printed_pages_cut_nothing_off(archives: Path, tmp_path: Path) -> None:
    web_site.make(tmp_path / "web", archives, False, lambda _: None)
    for name, made in documents(tmp_path).items():
        (tmp_path / "web" / f"{name}.html").write_text(html_page.render(made))
    with browsing.opened(1280, "dark") as tab:
        for path in (tmp_path / "web").rglob("*.html"):
            tab.goto(path.as_uri())
            assert tab.pdf(format="A4").startswith(b"%PDF")
            assert (path.name, browsing.cut_off(tab)) == (path.name, [])
            tab.set_viewport_size({"width": 1280, "height": 900})


@browser
def test_axe_would_have_found_a_barrier(tmp_path: Path) -> None:
    html = html_page.render(documents(tmp_path)["history"]).replace(' tabindex="0"', "")
    (tmp_path / "bad.html").write_text(html)
    with browsing.opened(390, "light") as tab:
        tab.goto((tmp_path / "bad.html").as_uri())
        assert any(line.startswith("scrollable-region-focusable") for line in browsing.barriers(tab))


@browser
def test_a_wide_table_scrolls_by_keyboard_and_shows_that_there_is_more(archives: Path, tmp_path: Path) -> None:
    web_site.make(tmp_path / "web", archives, False, lambda _: None)
    with browsing.opened(390, "light") as tab:
        tab.goto((tmp_path / "web" / "index.html").as_uri())
        region = tab.get_by_role("region", name="Measurements of nightly on local")
        assert "gradient" in region.evaluate("element => getComputedStyle(element).backgroundImage")
        region.focus()
        tab.keyboard.press("ArrowRight")
        tab.wait_for_function("element => element.scrollLeft > 0", arg=region.element_handle())
        tab.emulate_media(media="print")
        assert region.evaluate("element => getComputedStyle(element).overflowX") == "visible"


def test_a_page_of_others_is_left_alone_and_listed(archives: Path, run: Run, tmp_path: Path) -> None:
    assert run("dlio-hpc", "site-report", "web", "--quiet", "--archive", archives).err == ""
    page = next((tmp_path / "web" / "jobs").glob("*.html"))
    for moment in (0, 4e9):
        page.write_text("mine")
        os.utime(page, (moment, moment))
        done = run("dlio-hpc", "site-report", "web", "--archive", archives)
        assert (done.code, page.read_text()) == (2, "mine")
        assert f"{page.name} was not written by dlio-hpc site-report" in done.err
        assert (tmp_path / "web" / "index.html").exists()
