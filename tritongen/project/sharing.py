"""The runtimes of a tree: where they are, which operators need them, and their changes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set

from ..diagnostics.report import Diagnostic, Rejected
from ..resources import digest
from .runtime import RUNTIME_FOLDERS, Needs, compare_runtime, linked_folders, needs_in
from .settings import shown_path
from .stamps import Stamps
from .tree import TESTS, Change, has_runtime, listing, single_files

LINKED = "is a symbolic link, so its files would be another folder's"


def needs_on_disk(out: str, op: str, stamps: Sequence[Stamps]) -> Needs:
    """The needs of an operator that is not rendered, as stamps have recorded them, or else read from its files."""
    found = (one.needs_if_fresh(op) for one in stamps)
    known = next((one for one in found if one is not None), None)
    if known is not None:
        return known
    folder = os.path.join(out, op)
    return needs_in(folder) if os.path.isdir(folder) else needs_in(out, single_files(op))


def is_single(out: str, op: str, ours: Mapping[str, str]) -> bool:
    """Whether an operator is in one file: by its setting in `ours`, or else because it has no folder in `out`."""
    return ours[op] == "file" if op in ours else not os.path.isdir(os.path.join(out, op))


def homes_of(out: str, ours: Mapping[str, str], needs: Mapping[str, Needs]) -> dict[str, Needs]:
    """The folders that need a runtime (`out`, folders of operators, and of tests), with their operators' needs.

    `ours` maps operators to their `runtime` setting. The folder of another project's operator keeps its own runtime;
    if it has none, the operator needs the one in `out`. Operators in one file need one for their tests only. Raises
    `Rejected` if a folder of a runtime is a symbolic link.
    """
    homes: dict[str, Needs] = {}
    for op, own in needs.items():
        inside = os.path.join(out, op)
        if is_single(out, op, ours):
            if own:
                tests = os.path.join(out, TESTS)
                homes[tests] = homes.get(tests, frozenset()) | own
        elif op in ours or not has_runtime(inside):
            home = inside if ours.get(op) == "folder" else out
            homes[home] = homes.get(home, frozenset()) | own
    if linked := [path for home in sorted(homes) for path in linked_folders(home)]:
        hint = "put a folder in its place: `tritongen build` fills it"
        raise Rejected(Diagnostic(path, 0, 0, "TG708", f"this {LINKED}", hint) for path in map(shown_path, linked))
    return homes


def runtime_changes(
    out: str, ours: Mapping[str, str], needs: Mapping[str, Needs], gone: Set[str], stamps: Sequence[Stamps]
) -> Iterator[Change]:
    """The changes to the runtimes of a tree. Those recorded in `stamps` as correct are skipped; others that are get
    recorded.
    """
    homes = homes_of(out, ours, needs)
    others = () if TESTS in needs else (os.path.join(out, TESTS),)
    places = {out, *gone, *others, *(os.path.join(out, op) for op in ours)}
    before = {home for home in places if has_runtime(home)}
    for home in sorted(homes.keys() | before):
        own = homes.get(home)
        holds = "" if own is None else digest(*sorted(own))
        files = {folder: listing(os.path.join(home, folder)) for folder in RUNTIME_FOLDERS}
        if any(one.is_shared_fresh(home, holds, files) for one in stamps):
            continue
        changes = tuple(compare_runtime(home, own))
        if not changes and own is not None:
            for one in stamps:
                one.record_shared(home, holds, files)
        yield from changes
