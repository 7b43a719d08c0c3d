"""Takes the pictures of the documents in headless Chromium: of a page and of a report.

    python docs/screenshots.py SITE
    python docs/screenshots.py REPORT.html

`page` has written the folder SITE, and `bench --html` the file. Needs Chromium and the package playwright.
"""

from __future__ import annotations

import base64
import functools
import http.server
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent / "page"
DESK, PHONE = {"width": 1280, "height": 760}, {"width": 390, "height": 760}


def taken(page: Any, name: str) -> None:
    """Writes the page as it is, in a format and quality of some 50 KB."""
    shot = page.context.new_cdp_session(page).send("Page.captureScreenshot", {"format": "webp", "quality": 80})
    (HERE / f"{name}.webp").write_bytes(base64.b64decode(shot["data"]))


def opened(browser: Any, address: str, scheme: str, viewport: dict[str, int], phone: bool = False) -> Any:
    page = browser.new_context(viewport=viewport, color_scheme=scheme, is_mobile=phone, has_touch=phone).new_page()
    page.goto(address)
    page.wait_for_selector("#state[data-kind=ready]", timeout=120_000)
    return page


def put_caret(page: Any, word: str) -> None:
    """Puts the caret behind a word."""
    page.evaluate(
        "(word) => { const area = document.querySelector('textarea'), at = area.value.indexOf(word) + word.length;"
        "area.focus(); area.setSelectionRange(at, at); }",
        word,
    )


def pictured(report: str) -> None:
    """The norms in the report of a run, with the figures of the first."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_context(viewport=DESK, color_scheme="light").new_page()
        page.goto(Path(report).resolve().as_uri())
        page.fill("input", "norm")
        page.click("section:not([hidden]) summary")
        page.evaluate("document.querySelector('.keys').scrollIntoView()")
        taken(page, "report")
        browser.close()


def main(site: str) -> None:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/"
    HERE.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = opened(browser, f"{address}#layer_norm", "light", DESK)
        put_caret(page, "rstd")
        page.evaluate("document.querySelector('.linked').scrollIntoView({ block: 'center' })")
        taken(page, "kernels")
        page = opened(browser, f"{address}#layer_norm", "dark", DESK)
        page.click("[data-tab=plan]")
        put_caret(page, "* rst")
        page.keyboard.press("Delete")
        page.wait_for_selector("article")
        put_caret(page, "mean(x")
        page.keyboard.type(" * we")
        page.wait_for_timeout(500)
        taken(page, "mistake")
        page = opened(browser, f"{address}#rms_norm", "dark", PHONE, phone=True)
        page.tap("[data-to=result]")
        page.tap("[data-tab=plan]")
        page.wait_for_timeout(300)
        taken(page, "phone")
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    (pictured if sys.argv[1].endswith(".html") else main)(sys.argv[1])
