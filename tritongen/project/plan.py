"""`plan`: the cost of the steps of specs. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping

from ..diagnostics.locate import locate
from ..diagnostics.report import Diagnostic
from ..roofline.account import Account, account_of
from ..roofline.devices import Device
from ..roofline.sizes import require_axes
from .render import all_made_of
from .settings import find_projects


def plan(
    paths: tuple[str, ...], lengths: Mapping[str, int], device: Device
) -> tuple[list[Account], tuple[Diagnostic, ...]]:
    """The account of each spec, in the order of their paths, and warnings of hidden costs.

    Raises `Rejected` for specs that are wrong, and `BadSizes` for lengths of axes that no spec has.
    """

    sources = (source for project in find_projects(paths) for source in project.sources)
    found = all_made_of(sources, lambda spec: account_of(spec, lengths, device))
    require_axes([dict(one.lengths) for _, _, one in found], lengths)
    warnings = [warning for source, text, one in found for warning in locate(source.shown, text, one.warnings)]
    return [one for _, _, one in found], tuple(warnings)
