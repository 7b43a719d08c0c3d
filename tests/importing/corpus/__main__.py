"""`python -m tests.importing.corpus [WORDS]`: writes docs/corpus.md, or prints the rows of cases with these words.

Kernels are built and run with --kernels, which takes a second or two for each case in Triton's interpreter. --shown
writes the specs of docs/imported.md anew.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

os.environ.setdefault("TRITON_INTERPRET", "1")

from tests.importing.corpus import HERE, PACKAGES, Case, corpus, read_cases, shown_cases
from tests.importing.test_values import printed
from tritongen.diagnostics.report import Mistakes, Rejected
from tritongen.importing.checking import check
from tritongen.roofline.account import account_of
from tritongen.roofline.devices import device_of
from tritongen.spec.read import read_spec

PAGE = Path(__file__).parents[3] / "docs" / "corpus.md"
SHOWN = PAGE.parent / "imported.md"
SOURCES = {
    "torch.nn modules": lambda one: one.target.startswith("torch.nn:"),
    "torch.nn.functional": lambda one: one.target.startswith("torch.nn.functional"),
    "torch": lambda one: one.target.startswith("torch:"),
    "OpInfo samples": lambda one: one.target.startswith("OpInfo"),
    **{one: lambda case, one=one: case.package == one for one in PACKAGES},
}


def row(case: Case, has_kernels: bool) -> tuple[str, str, str, str]:
    """What was imported, its steps forward and backward, whether it is right, and what is missing."""
    name = f"`{case.name}`"
    try:
        result = case.make()
        account = account_of(read_spec(result.imported.name, result.imported.text), {}, device_of("h100"))
        steps = f"{len(account.forward)} + {len(account.backward)}"
        _, is_right = check(result) if has_kernels else check(result, printed)
    except Rejected as rejected:
        missing = dict.fromkeys(one.message for one in rejected.diagnostics)
        return name, "", "", "; ".join(missing)
    except Mistakes as mistakes:
        return name, "", "no", "; ".join(one.message for one in mistakes.mistakes)
    except Exception as error:  # A defect, which is not to keep the others from the page.
        return name, "", "no", f"{type(error).__name__} while it is planned: {error}"
    return name, steps, "yes" if is_right else "no", ""


def page(rows: Iterable[tuple[str, tuple[str, str, str, str]]], head: str) -> str:
    by_source: dict[str, list[tuple[str, str, str, str]]] = {}
    for source, one in rows:
        by_source.setdefault(source, []).append(one)
    lines = [head, "| from | tried | imported | right |", "| --- | ---: | ---: | ---: |"]
    for source, found in by_source.items():
        imported = [one for one in found if one[2]]
        lines.append(f"| {source} | {len(found)} | {len(imported)} | {sum(one[2] == 'yes' for one in imported)} |")
    for source, found in by_source.items():
        lines += ["", f"## {source}", "", "| imported | steps | right | what is missing |", "| --- | --- | --- | --- |"]
        lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in one)} |" for one in found]
    return "\n".join(lines) + "\n"


def show() -> None:
    """Writes the specs of a page anew."""
    text = SHOWN.read_text(encoding="utf-8")
    for case, before in shown_cases(text):
        text = text.replace(before, case.make().imported.text)
    SHOWN.write_text(text, encoding="utf-8")


def main(words: list[str]) -> None:
    warnings.simplefilter("ignore")
    if "--shown" in words:
        show()
        return
    has_kernels = "--kernels" in words
    words = [one for one in words if one != "--kernels"]
    rows = []
    for case in [*corpus(), *read_cases(HERE / "refused.txt")]:
        if words and not any(word in f"{case.target} {case.name}" for word in words):
            continue
        source = next(name for name, is_of in SOURCES.items() if is_of(case))
        rows.append((source, row(case, has_kernels)))
        print(source, *rows[-1][1], sep=" | ", flush=True)
    if not words:
        head = PAGE.read_text(encoding="utf-8").partition("| from |")[0].rstrip() + "\n"
        PAGE.write_text(page(sorted(rows, key=lambda one: list(SOURCES).index(one[0])), head), encoding="utf-8")


main(sys.argv[1:])
