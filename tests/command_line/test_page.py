"""`tritongen page`: what it writes and refuses, and the page itself in headless Chromium, where that and Pyodide are.

`pytest tests/command_line/test_page.py` by itself also holds the page to its times.
"""

import base64
import functools
import hashlib
import http.server
import io
import json
import os
import shutil
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.harness.importing import module_at
from tritongen.benching.run import Case, Figure, Run
from tritongen.cli import cli
from tritongen.page import browser, build
from tritongen.page.measured import Measured, measured_in

ROOT = Path(__file__).parents[2]
RMS_NORM = (ROOT / "specs" / "rms_norm.toml").read_text(encoding="utf-8")
TABLE = ROOT / "docs" / "performance.md"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ALONE = "PYTEST_XDIST_WORKER" not in os.environ and os.getloadavg()[0] < 2


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def spec_here(text: str = RMS_NORM, name: str = "rms_norm") -> str:
    """A project with one spec, in the working directory."""
    Path("specs").mkdir(exist_ok=True)
    Path("tritongen.toml").touch()
    Path(f"specs/{name}.toml").write_text(text, encoding="utf-8", newline="\n")
    return f"specs/{name}.toml"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pyodide(here: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An archive of what Pyodide has, without Pyodide, that is taken for it; and no node to run it."""
    with tarfile.open(here / "pyodide.tgz", "w:gz") as packed:
        for name in build.RUN_TIME:
            (here / name).write_text(name)
            packed.add(here / name, f"package/{name}")
            (here / name).unlink()
    found = hashlib.sha512((here / "pyodide.tgz").read_bytes()).digest()
    monkeypatch.setattr(build, "SHA512", base64.b64encode(found).decode())
    monkeypatch.setenv("PATH", "")
    return "pyodide.tgz"


# What the worker calls


def answer(view: str, text: str, **options: str) -> Any:
    return json.loads(browser.answer(view, text, **options))


@pytest.mark.usefixtures("here")
def test_answers_are_what_commands_print() -> None:
    path = spec_here()
    names = answer("kernels.py", RMS_NORM)["names"]
    assert {"kernels.py", "op.py", "configs.py", "test_rms_norm.py", "bench_rms_norm.py"} < set(names)
    assert all(answer(name, RMS_NORM)["file"] == run("show", path, name).stdout for name in names)
    assert answer("gluon_kernels.py", RMS_NORM) == {"diagnostics": [], "file": "", "names": names}
    plan = answer("plan", RMS_NORM, sizes="N=1000", device="a100")
    assert plan["text"] == run("plan", path, "--sizes", "N=1000", "--device", "a100").stdout
    assert (
        plan["plan"]
        == json.loads(run("plan", path, "--format", "json", "--sizes", "N=1000", "--device", "a100").stdout)["plans"][0]
    )
    assert answer("gradient", RMS_NORM)["gradient"] == run("grad", path).stdout


@pytest.mark.usefixtures("here")
def test_mistakes_are_answers() -> None:
    path = spec_here(RMS_NORM.replace("x * rstd", "x * rstt"))
    told = json.loads(run("build", path, "--format", "json").stdout)["diagnostics"]
    for view in ("plan", "kernels.py", "gradient"):
        assert answer(view, Path(path).read_text()) == {"diagnostics": told}
    assert "Z" in answer("plan", RMS_NORM, sizes="Z=4")["error"]
    assert "h101" in answer("plan", RMS_NORM, device="h101")["error"]
    without = RMS_NORM[: RMS_NORM.index("[grad]")]
    assert answer("gradient", without) == {"diagnostics": [], "gradient": ""}


@pytest.mark.usefixtures("here")
def test_a_crash_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    spec_here()
    monkeypatch.setattr("tritongen.project.plan.plan", lambda *_: 1 // 0)
    assert "ZeroDivisionError" in answer("plan", RMS_NORM)["bug"]


def test_the_zip_is_what_build_writes(here: Path) -> None:
    path = spec_here()
    with zipfile.ZipFile(io.BytesIO(browser.archive(RMS_NORM))) as packed:
        zipped = {name: packed.read(name) for name in packed.namelist()}
    shutil.rmtree("generated")
    assert run("build", path).exit_code == 0
    files = [one for one in Path("generated").rglob("*") if one.is_file() and not one.name.startswith(".")]
    assert len(files) > 8
    assert zipped == {str(one): one.read_bytes() for one in (*files, Path(path), Path("tritongen.toml"))}


# What the command writes


def test_the_folder(here: Path, pyodide: str) -> None:
    spec_here()
    spec_here(RMS_NORM.replace('"rms_norm"', '"other"'), "other")
    written = run("page", "site", "--pyodide", pyodide, "--measured", str(TABLE))
    assert written.exit_code == 0, written.output
    about = json.loads((here / "site" / "page.json").read_text())
    assert [(one["name"], one["folder"], "shares" in one) for one in about["specs"]] == [
        ("other", "specs", False),
        ("rms_norm", "specs", True),
    ]
    assert list(about["specs"][1]["shares"]) == ["tritongen", "torch", "torch.compile"]
    assert tuple(about["specs"][1]["shares"].values()) == module_at(ROOT / "docs" / "plot.py").shares()["rms_norm"]
    assert about["measured"]
    assert about["measured"] in TABLE.read_text(encoding="utf-8")
    names = set(zipfile.ZipFile(here / "site" / "python.zip").namelist())
    assert {"tritongen/cli.py", "tritongen/_templates/runtime/launch.py", "black/__init__.py", "click/core.py"} < names
    assert {"jinja2/__init__.py", "markupsafe/_native.py", "blib2to3/Grammar.txt"} < names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".pyd"))]
    mentioned = (here / "site" / "index.html").read_text() + "".join(
        one.read_text() for one in (here / "site").glob("*.mjs")
    )
    assert not [word for word in ("https://", "//cdn") if word in mentioned], "everything is in the folder"
    before = {one: one.read_bytes() for one in (here / "site").rglob("*") if one.is_file()}
    assert run("page", "site", "--pyodide", pyodide, "--measured", str(TABLE)).exit_code == 0
    assert before == {one: one.read_bytes() for one in (here / "site").rglob("*") if one.is_file()}


def test_a_run_of_bench_is_measured() -> None:
    figures = [
        Figure(Case(op, direction, dtype, "N", size), provider, "GB/s", share=share)
        for op, direction, dtype, size, provider, share in (
            ("a", "forward", "bfloat16", 4096, "tritongen", 0.5),
            ("a", "forward", "bfloat16", 65536, "tritongen", 0.904),
            ("a", "forward", "bfloat16", 65536, "liger", 0.8),
            ("a", "forward", "bfloat16", 65536, "torch", None),
            ("a", "forward", "float32", 65536, "tritongen", 0.3),
            ("a", "backward", "bfloat16", 131072, "tritongen", 0.2),
        )
    ]
    found = measured_in(Run({"device": "H100", "torch": "2.11", "command": "bench"}, tuple(figures)).json())
    assert found == Measured({"a": {"tritongen": 90, "liger": 80}}, "H100, torch 2.11")


@pytest.mark.usefixtures("here")
def test_nothing_is_written_where_something_is_wrong(pyodide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec_here()
    Path("mine").mkdir()
    Path("mine/file").touch()
    refused = run("page", "mine", "--pyodide", pyodide)
    assert "mine" in str(refused.exception)
    assert os.listdir("mine") == ["file"]
    assert "SHA-512" in str(run("page", "site", "--pyodide", "specs/rms_norm.toml").exception)
    Path("run.json").write_text("{}")
    assert "run.json" in str(run("page", "site", "--pyodide", pyodide, "--measured", "run.json").exception)
    Path("run.json").unlink()
    spec_here(RMS_NORM.replace("[outputs]", "[output]"))
    assert run("page", "site", "--pyodide", pyodide).return_value == 2
    spec_here()
    monkeypatch.setenv("XDG_CACHE_HOME", os.path.abspath("cache"))
    monkeypatch.setattr(build, "URL", Path("absent.tgz").absolute().as_uri())
    assert "npm pack" in str(run("page", "site").exception)
    assert sorted(os.listdir()) == ["mine", "pyodide.tgz", "specs", "tritongen.toml"]


# The page in a browser


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page with the gallery."""
    archive = build.cached()
    if CHROMIUM is None or not os.path.exists(archive):
        pytest.skip("needs Chromium, and Pyodide as `tritongen page` has downloaded it")
    folder = tmp_path_factory.mktemp("page") / "site"
    built = run("page", str(folder), str(ROOT / "specs"), "--measured", str(TABLE))
    assert built.exit_code == 0, built.output
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def ready(page: Any, kind: str = "ready") -> None:
    page.wait_for_selector(f"#state[data-kind={kind}]", timeout=120_000)


def put_caret(page: Any, word: str, offset: int) -> None:
    page.evaluate(
        "([word, offset]) => { const area = document.querySelector('textarea'), at = area.value.indexOf(word) + offset;"
        "area.focus(); area.setSelectionRange(at, at); }",
        [word, offset],
    )


def test_in_chromium(site: str, chromium: Any, here: Path) -> None:
    path = spec_here()
    context = chromium.new_context(accept_downloads=True)
    page, failures = context.new_page(), list[str]()
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.on("request", lambda one: None if one.url.startswith((site, "blob:")) else failures.append(one.url))

    begun = time.monotonic()
    page.goto(f"{site}#rms_norm")
    page.wait_for_selector("#view .numbered", timeout=120_000)
    first = time.monotonic() - begun
    ready(page)
    for name in ("kernels.py", "op.py", "configs.py", "test_rms_norm.py"):
        page.click(f'[data-tab="{name}"]')
        assert page.text_content("#view .numbered") == run("show", path, name).stdout
    page.click('[data-tab="gradient"]')
    assert page.text_content("#view .numbered") == run("grad", path).stdout
    page.click('[data-tab="plan"]')
    assert page.text_content(".terminal pre") == run("plan", path).stdout
    assert page.locator(".step").count() == 2
    with page.expect_download() as download:
        page.click("#download")
    assert "generated/rms_norm/kernels.py" in zipfile.ZipFile(download.value.path()).namelist()

    # A wrong name: the line, carets under it, what to do; and the way back.
    page.click('[data-tab="kernels.py"]')
    put_caret(page, "rstd * weight", 4)
    page.keyboard.press("Backspace")
    page.keyboard.type("t")
    page.keyboard.press("Escape")
    ready(page, "wrong")
    marked, carets = (page.text_content("article pre").split("\n")[place] for place in (0, 1))
    assert marked[carets.index("^") : carets.rindex("^") + 1] == "rstt"
    assert page.text_content(".paint .error") == "rstt"
    page.click("[data-explain]")
    assert "TG203" in page.text_content(".explained[open]")
    page.click('[data-tab="kernels.py"]')
    page.click("[data-fix]")
    ready(page)
    assert page.locator("article").count() == 0

    # Completion, and another result.
    put_caret(page, "x * rstd", 0)
    page.keyboard.type("sil")
    page.wait_for_selector("#offers li")
    page.keyboard.press("Tab")
    assert 'y = "silu(x * rstd' in page.input_value("textarea")
    put_caret(page, "rstd * weight", len("rstd"))
    begun = time.monotonic()
    page.keyboard.type(")")
    page.wait_for_function("document.querySelector('#view').textContent.includes('silu(x * rstd)')", timeout=120_000)
    following = time.monotonic() - begun
    spec_here(page.input_value("textarea"))
    ready(page)
    assert page.text_content("#view .numbered") == run("show", path, "kernels.py").stdout

    # The address holds the spec; the gallery holds others.
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    assert 'y = "silu(x * rstd) * weight"' in page.input_value("textarea")
    page.keyboard.press("Control+k")
    page.keyboard.type("softmax last axis")
    page.keyboard.press("Enter")
    assert 'name = "softmax"' in page.input_value("textarea")
    context.close()
    assert not failures
    if ALONE:
        assert first < 10
        assert following < 2


def test_on_a_phone(site: str, chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(f"{site}#softmax")
    ready(page)
    assert page.is_visible("textarea")
    page.tap('[data-to="result"]')
    assert "softmax_kernel" in page.text_content("#view .numbered")
    for name in ("plan", "gradient", "language"):
        page.tap(f'[data-tab="{name}"]')
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
