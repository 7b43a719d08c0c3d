"""The folders of templates, and digests of the inputs that determine the text of generated files."""

from __future__ import annotations

import hashlib
import os

from . import __version__

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_INSTALLED = os.path.join(_PACKAGE, "_templates")
_ADDED: list[str] = []  # folders of templates
DIGITS = 16  # hexadecimal digits of a digest


def in_checkout() -> bool:
    """Whether this is a checkout, in which files can change without the version."""
    return not os.path.isdir(_INSTALLED)


def templates_dir() -> str:
    """`tritongen/_templates` in a wheel, `templates/` in a checkout or an editable install."""
    return os.path.join(os.path.dirname(_PACKAGE), "templates") if in_checkout() else _INSTALLED


def add_templates(folder: str) -> None:
    """Add a folder of templates of an external family, which is searched after the others."""
    _ADDED.append(folder)


def template_folders() -> tuple[str, ...]:
    return (templates_dir(), *_ADDED)


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:DIGITS]


def templates_digest(shape: str) -> str:
    """The digest in headers: of the templates, the version, and `shape`, the settings that the text depends on."""
    return digest(__version__, shape, *_templates())


def program_digest() -> str:
    """The digest in stamps: of the whole program, so that no version number has to be incremented for a change."""
    return digest(*_templates(), *_texts_under(_PACKAGE, ".py"))


def read_text(path: str) -> str:
    """The text of a file with universal newlines, because git may convert line ends on checkout."""
    with open(path, encoding="utf-8") as file:
        return file.read()


def _templates() -> list[str]:
    return [text for folder in template_folders() for text in _texts_under(folder)]


def _texts_under(folder: str, suffix: str = "") -> list[str]:
    """Relative paths and contents of all files under a folder, in a deterministic order."""
    texts = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("__pycache__", "_templates"))
        for name in sorted(files):
            if name.endswith(suffix) and not name.endswith((".pyc", "~", ".swp")):
                path = os.path.join(parent, name)
                texts += [os.path.relpath(path, folder).replace(os.sep, "/"), read_text(path)]
    return texts
