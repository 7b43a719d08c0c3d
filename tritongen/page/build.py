"""`page`: a folder for any static web server with a page that runs the generator in the browser.

Python is Pyodide with a pinned version and hash. black, click and jinja2 are the installed ones, so that the page emits
the same bytes as `build`.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .. import __version__
from ..diagnostics.codes import CODES
from ..diagnostics.report import Unavailable
from ..lang.catalogue import entries
from ..project.render import made_of
from ..project.settings import Source, find_projects
from ..resources import read_text, templates_dir
from ..roofline.devices import DEVICES
from ..spec.schema import schema
from .measured import Measured, measured_in

PYODIDE = "314.0.7"
ARCHIVE = f"pyodide-{PYODIDE}.tgz"
URL = f"https://registry.npmjs.org/pyodide/-/{ARCHIVE}"
SHA512 = "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
RUN_TIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
_NEEDED = ("black", "click", "jinja2")
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_WEB = os.path.join(_PACKAGE, "page", "web")
_MARK = "page.json"  # marks a folder that `page` may replace


class BadPage(Exception):
    """OUT or an archive of Pyodide that cannot be used."""


@dataclass(frozen=True, slots=True)
class Page:
    """The number of files of a page, their size in bytes, and whether its Python is compiled."""

    files: int
    size: int
    is_compiled: bool


def build_page(out: str, paths: tuple[str, ...], pyodide: str, measured: str) -> Page:
    """Write the page, or nothing.

    Raises `Rejected` for specs that are wrong, `BadRun` for an incorrect `measured`, `BadPage`, and `Unavailable` if
    Pyodide or a package is missing.
    """
    if os.path.exists(out) and not _is_ours(out):
        raise BadPage(f"{out} exists, and `tritongen page` did not write it")
    about = data(tuple(_sources(paths)), measured_in(read_text(measured) if measured else ""))
    files = {f"pyodide/{name}": text for name, text in _run_time(pyodide or _downloaded()).items()}
    files |= {name: Path(_WEB, name).read_bytes() for name in sorted(os.listdir(_WEB))}
    files["python.zip"] = _zipped(dict(_library()))
    files[_MARK] = json.dumps(about, indent=1).encode()
    return _replace(out, files)


def data(sources: tuple[Source, ...], measured: Measured) -> dict[str, Any]:
    """The data of the page before Python runs: specs to start from, and the language. Raises `Rejected`."""
    specs = []
    for source in sources:
        text, spec, _ = made_of(source, lambda _: None)
        folder = os.path.dirname(source.shown)
        row = {"name": spec.name, "summary": " ".join(spec.summary.split()), "folder": folder, "text": text}
        specs.append(row | ({"shares": measured.shares[spec.name]} if spec.name in measured.shares else {}))
    functions = (("name", "topic", "form", "takes", "gives", "summary"), entries())
    return {
        "version": __version__,
        "pyodide": PYODIDE,
        "measured": measured.device,
        "devices": list(DEVICES),
        "specs": specs,
        "functions": [{name: getattr(one, name) for name in functions[0]} for one in functions[1]],
        "codes": {one.code: {"title": one.title, "explanation": one.explanation} for one in CODES.values()},
        "schema": schema(),
    }


def _sources(paths: tuple[str, ...]) -> Iterator[Source]:
    for project in find_projects(paths):
        yield from project.sources


def _is_ours(out: str) -> bool:
    return os.path.isdir(out) and (os.path.exists(os.path.join(out, _MARK)) or not os.listdir(out))


def cached() -> str:
    """The path to which the archive of Pyodide is downloaded."""
    import platformdirs

    return os.path.join(platformdirs.user_cache_dir("tritongen"), ARCHIVE)


def _downloaded() -> str:
    import urllib.request

    path = cached()
    if not os.path.exists(path):
        try:
            with urllib.request.urlopen(URL, timeout=60) as response:
                content = response.read()
        except OSError as error:
            how = f"`npm pack pyodide@{PYODIDE}` where there is a network, and --pyodide {ARCHIVE} here"
            raise Unavailable(f"{URL} cannot be read ({error}): {how}") from None
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = Path(f"{path}.{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(path)
    return path


def _run_time(archive: str) -> dict[str, bytes]:
    """The files of Pyodide's npm package that a page needs. Raises `BadPage` if the hash differs."""
    content = Path(archive).read_bytes()
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != SHA512:
        raise BadPage(f"{archive} is not what npm has as {ARCHIVE}: its SHA-512 differs")
    with tarfile.open(fileobj=io.BytesIO(content)) as packed:
        members = {name: packed.extractfile(f"package/{name}") for name in RUN_TIME}
        return {name: member.read() for name, member in members.items() if member is not None}


def _library() -> Iterator[tuple[str, bytes]]:
    """The files of this program, its templates, and the packages that it needs, without compiled ones."""
    for root, place in ((_PACKAGE, "tritongen"), (templates_dir(), "tritongen/_templates")):
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in ("__pycache__", "_templates", "web")]
            for name in names:
                path = os.path.join(folder, name)
                if not name.endswith((".pyc", "~", ".swp")):
                    yield f"{place}/{os.path.relpath(path, root)}".replace(os.sep, "/"), Path(path).read_bytes()
    for one in _distributions():
        for file in one.files or ():
            if file.suffix in (".py", ".txt") and ".." not in file.parts and "dist-info" not in file.parts[0]:
                yield file.as_posix(), Path(file.locate()).read_bytes()


def _distributions() -> Iterator[metadata.Distribution]:
    """The needed packages and all that they require, each once. Raises `Unavailable` if one is not installed."""
    from packaging.requirements import Requirement

    names = list(_NEEDED)
    for name in names:  # which grows
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise Unavailable(f"{name} is not installed: pip install {name}") from None
        needs = map(Requirement, found.requires or ())
        wanted = (one.name for one in needs if one.marker is None or one.marker.evaluate({"extra": ""}))
        names += [one for one in wanted if one not in names]
        yield found


def _zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(files):
            zipped.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)  # The same date everywhere.
    return packed.getvalue()


def _replace(out: str, files: Mapping[str, bytes]) -> Page:
    """Write `files` to a fresh folder, compile its Python if possible, and put it in place of `out`."""
    fresh = f"{os.path.normpath(out)}.{os.getpid()}"
    try:
        for name, content in files.items():
            path = Path(fresh, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        is_compiled = _compile(fresh)
        size = sum(os.path.getsize(os.path.join(fresh, name)) for name in files)
        if os.path.isdir(out):
            shutil.rmtree(out)
        os.rename(fresh, out)
        return Page(len(files), size, is_compiled)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _compile(folder: str) -> bool:
    """Compile the Python of a page, if node is installed to run Pyodide; whether it was. Compiling in the browser would
    take two thirds of the time until the page is ready.
    """
    node = shutil.which("node")
    if node is None:
        return False
    command = [node, os.path.join(_PACKAGE, "page", "compile.mjs"), os.path.abspath(folder)]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600).returncode == 0
