"""What the operators of a folder share: the runtime, the same in every project, and the package that exports them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping

from .resources import digest, read_text, templates_dir
from .tree import with_header

SOURCE = "its runtime"  # what headers name in the place of a spec
_SPEC = "0" * 16
_MEND = "`tritongen build` writes it beside the operators"
_SOURCES = "runtime"  # the folder of templates/ that is emitted as it is


@functools.cache
def runtime_files() -> Mapping[str, str]:
    """The files of the runtime as they are written, by name."""
    folder = os.path.join(templates_dir(), _SOURCES)
    names = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    texts = {name: read_text(os.path.join(folder, name)) for name in names}
    templates = digest(*texts, *texts.values())
    return {name: with_header(SOURCE, _SPEC, templates, len(texts), text, _MEND) for name, text in texts.items()}


def package_files(ops: Iterable[str]) -> Mapping[str, str]:
    """The `__init__.py` beside the folders of some operators."""
    from .compile import environment

    text = environment().get_template("package.py.jinja").render(ops=sorted(ops))
    return {"__init__.py": with_header(SOURCE, _SPEC, digest(text), 1, text, _MEND)}
