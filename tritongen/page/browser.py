"""Answers of the generator to the page, in Pyodide as in any other Python: a spec's text in, JSON out."""

from __future__ import annotations

import functools
import gc
import io
import json
import os
import re
import traceback
from collections.abc import Mapping
from typing import Any

from ..diagnostics.report import BadOption, Diagnostic, Rejected, as_data
from ..emit.format import check_black
from ..project.render import file_of, generate_modules, made_of, modules_of
from ..project.settings import Source, find_projects
from ..resources import read_text, templates_digest
from ..spec.types import Spec

_NAME = re.compile(r"""^\s*name\s*=\s*["']([A-Za-z_]\w*)["']""", re.MULTILINE)
SPECS = "specs"


def start(folder: str) -> None:
    """Make `folder` a project and the current folder, for all answers, and import the modules that they need."""
    from ..operator import compile, printed  # noqa: F401
    from ..project import plan  # noqa: F401

    check_black()
    os.makedirs(os.path.join(folder, SPECS), exist_ok=True)
    os.chdir(folder)
    with open("tritongen.toml", "w", encoding="utf-8"):
        pass
    # black's trees become garbage file by file; collecting more often takes a fifth of the time.
    gc.freeze()
    gc.set_threshold(200_000)


def answer(view: str, text: str, sizes: str = "", device: str = "h100") -> str:
    """JSON of a view ("plan", "gradient" or the name of a file) of the spec `text`, with diagnostics. It has `error` if
    `sizes` or `device` is invalid, or `bug`, the traceback of an internal error.
    """
    try:
        source = _source(text)
        if view == "plan":
            found = _plan(source, sizes, device)
        else:
            found = _gradient(source) if view == "gradient" else _file(view, source)
    except Rejected as rejected:
        found = {"diagnostics": _data(rejected.diagnostics)}
    except BadOption as error:
        found = {"diagnostics": [], "error": str(error)}
    except Exception:
        found = {"diagnostics": [], "bug": traceback.format_exc()}
    return json.dumps(found)


def archive(text: str) -> bytes:
    """A zip of the project: the spec, and `generated/` as `tritongen build` writes it. Raises `Rejected`."""
    import shutil
    import zipfile

    from ..project.build import build

    source = _source(text)
    shutil.rmtree(source.settings.out_dir, ignore_errors=True)
    build((source.path,))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.write("tritongen.toml")
        zipped.write(source.shown)
        for folder, folders, names in os.walk(source.settings.out):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                zipped.write(os.path.join(folder, name))
    return packed.getvalue()


def _source(text: str) -> Source:
    """Write `text` as the project's only spec, in a file named after its operator."""
    for old in os.listdir(SPECS):
        os.remove(os.path.join(SPECS, old))
    found = _NAME.search(text)
    path = os.path.join(SPECS, f"{found[1] if found else 'spec'}.toml")
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return find_projects((path,))[0].sources[0]


def _plan(source: Source, sizes: str, device: str) -> dict[str, Any]:
    from ..project.plan import plan
    from ..roofline.data import as_data as as_plan
    from ..roofline.devices import device_of
    from ..roofline.sizes import parsed
    from ..roofline.text import as_text

    (account,), warnings = plan((source.path,), parsed(sizes), device_of(device))
    return {"diagnostics": _data(warnings), "plan": as_plan(account), "text": as_text(account)}


def _file(name: str, source: Source) -> dict[str, Any]:
    """A file ("" if none has that name) and the names of all. Only one is formatted, since black is slow."""
    text, spec, modules, templates = _modules(source, read_text(source.path))
    file = file_of(source, text, spec, modules, name, templates) if name in modules else ""
    return {"diagnostics": [], "file": file, "names": sorted(modules)}


@functools.lru_cache(maxsize=1)
def _modules(source: Source, text: str) -> tuple[str, Spec, Mapping[str, str], str]:
    return *modules_of(source, generate_modules), templates_digest(source.settings.shape)


def _gradient(source: Source) -> dict[str, Any]:
    from ..operator.printed import printed_gradient

    has_gradient = made_of(source, lambda spec: spec.grad is not None)[2]
    text = made_of(source, printed_gradient)[2] if has_gradient else ""
    return {"diagnostics": [], "gradient": text}


def _data(diagnostics: tuple[Diagnostic, ...]) -> list[dict[str, str | int]]:
    return [as_data(one) for one in diagnostics]
