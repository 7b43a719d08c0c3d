"""`plan`: the cost of the steps of specs. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping

from ..diagnostics.locate import locate
from ..diagnostics.report import Diagnostic, Rejected
from ..roofline.account import Account, account_of
from ..roofline.devices import Device
from ..roofline.sizes import require_axes
from ..spec.types import Spec
from .render import made_of
from .settings import find_projects


def plan(
    paths: tuple[str, ...], lengths: Mapping[str, int], device: Device
) -> tuple[list[Account], tuple[Diagnostic, ...]]:
    """The account of each spec, in the order of their paths, and warnings of hidden costs.

    Raises `Rejected` for specs that are wrong, and `BadSizes` for lengths of axes that no spec has.
    """

    def account(spec: Spec) -> Account:
        return account_of(spec, lengths, device)

    accounts, warnings, wrong = list[Account](), list[Diagnostic](), list[Diagnostic]()
    for source in (source for project in find_projects(paths) for source in project.sources):
        try:
            text, _, found = made_of(source, account)
            accounts.append(found)
            warnings += locate(source.shown, text, found.warnings)
        except Rejected as rejected:
            wrong += rejected.diagnostics
    if wrong:
        raise Rejected(wrong)
    require_axes([dict(one.lengths) for one in accounts], lengths)
    return accounts, tuple(warnings)
