"""Build the text of a spec, and compare its operator with the same text evaluated by torch in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from templates.testing.ties import nudged
from tests.harness.importing import built
from tests.harness.oracles import NothingTimes, differentiated
from tests.random.evaluated import LEADING, Evaluated, Undecided
from tritongen.spec.read import read_spec

HEAD = '[op]\nname = "written"\nsummary = "Computes what is written."\n'


class Written:
    """The operator built from a spec's text, which may lack [op], and the text as an oracle."""

    def __init__(self, text: str, folder: Path) -> None:
        self.text = text if text.startswith("[op]") else HEAD + text
        spec = read_spec("written.toml", self.text)
        self.operator = getattr(built(spec, folder), spec.name)
        self.evaluated = Evaluated(self.text)

    def drawn(self, lengths: Mapping[str, int], seed: int = 0, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
        """A tensor for each input: normal values, indices from 0 to 2, or bools."""
        random = torch.Generator().manual_seed(seed)
        return {one.name: self.tensor(one.dtype, self.evaluated.shape(one, lengths, 0), random, dtype)
                for one in self.evaluated.inputs}  # fmt: skip

    def tensor(self, kind: str, shape: list[int], random: torch.Generator, dtype: torch.dtype) -> torch.Tensor:
        values = torch.randn(shape, generator=random, dtype=torch.float64)
        if "bool" in kind:
            return values > 0
        return torch.randint(0, 3, shape, generator=random) if "int" in kind else values.to(dtype)

    def has_results(
        self, lengths: Mapping[str, int], tensors: Mapping[str, torch.Tensor | None], params: Mapping[str, Any]
    ) -> bool:
        """Whether torch can evaluate the text, which has no maximum over an empty axis then."""
        sizes = {**dict.fromkeys(LEADING, 1), **lengths}
        try:
            self.evaluated(sizes, [*tensors.values()], params, leading=0)
        except IndexError:
            return False
        return True

    def compare(
        self,
        lengths: Mapping[str, int],
        tensors: Mapping[str, torch.Tensor | None],
        params: Mapping[str, Any] | None = None,
        tolerance: float = 1e-7,
        finite: bool = False,
    ) -> None:
        """Compare results and gradients for tensors, some of which may be None; `finite`: gradients only where finite.

        Memory that no kernel writes is NaN, or the largest integer. Raises `Undecided` if values differ, but the text's
        own values change as well for inputs with other last digits.
        """
        sizes = {**dict.fromkeys(LEADING, 1), **lengths}
        names = [one.name for one in self.evaluated.inputs]
        here = [name for name in names if tensors[name] is not None]
        given = [tensor for name in here if (tensor := tensors[name]) is not None]
        by = [here.index(name) for name in self.evaluated.by if name in here]

        def of_all(function: Callable[..., Any]) -> Callable[..., object]:
            def call(*own: torch.Tensor) -> object:
                found = function(*(dict(zip(here, own, strict=True)).get(name) for name in names))
                return found[0] if isinstance(found, tuple) and len(found) == 1 else found

            return call

        def formula(*own: torch.Tensor | None) -> object:
            return self.evaluated(sizes, own, params or {}, leading=0)

        with uninitialised_is_nan():
            dtype = next((one.dtype for one in given if one.is_floating_point()), torch.float32)
            found = differentiated(of_all(lambda *own: self.operator(*own, **(params or {}))), given, by, dtype)
        wide = [one.double() if one.is_floating_point() else one for one in given]
        wanted = differentiated(of_all(formula), wide, by, dtype)
        if finite or 0 in lengths.values():  # Elsewhere compare with gradients of the chosen branches only.
            of_chosen = differentiated(of_all(formula), wide, by, dtype, NothingTimes(finite and 1 in lengths.values()))
            own = [finite | one.isfinite().cpu() for one in found]  # With an empty axis, NaN as in torch is right, too.
            trios = zip(wanted, own, of_chosen, strict=True)
            wanted = [torch.where(one.isfinite() | ~is_own, one, other) for one, is_own, other in trios]
        results = [one.name for one in self.evaluated.outputs]
        if 0 in lengths.values() and "softmax(" in self.text and any(map(_is_undefined, wanted[: len(results)])):
            # An outgoing gradient that is NaN reaches all scores of its row.
            by, found, wanted = [], found[: len(results)], wanted[: len(results)]
        labels = [*results, *(f"the gradient by {here[place]}" for place in by)]
        for label, one, other in zip(labels, found, wanted, strict=True):
            if finite and label not in results:
                one, other = (torch.where(other.isfinite(), both, 0) for both in (one, other))
            scale = max(1.0, float(other.double().nan_to_num(0, 0, 0).abs().max())) if other.numel() else 1.0

            try:
                torch.testing.assert_close(one.double().cpu(), other.double(), rtol=tolerance, atol=tolerance * scale,
                                           equal_nan=True, msg=f"{label}: {{}}".format)  # fmt: skip
            except AssertionError:
                random = torch.Generator().manual_seed(2)
                again = differentiated(of_all(formula), [nudged(own, random) for own in wide], by, dtype)
                if not all(
                    torch.allclose(*pair, tolerance, tolerance, True) for pair in zip(again, wanted, strict=True)
                ):
                    raise Undecided from None
                raise


def _is_undefined(result: torch.Tensor) -> bool:
    return not bool(result.isfinite().all())


class Evaluation(Written):
    """Only the text, without an operator."""

    def __init__(self, text: str) -> None:
        self.text = text if text.startswith("[op]") else HEAD + text
        self.evaluated = Evaluated(self.text)


def differentiable(text: str, lengths: Mapping[str, int], drawn: Callable[[Written], Mapping[str, Any]]) -> list[str]:
    """The inputs of a text for which its results have nonzero gradients."""
    evaluation = Evaluation(text)
    given = drawn(evaluation)
    leaves = {name: t.requires_grad_() for name, t in given.items() if t.is_floating_point()}
    results = evaluation.evaluated({**dict.fromkeys(LEADING, 1), **lengths}, [*given.values()], {}, leading=0)
    smooth = [one for one in results if one.requires_grad]
    if not smooth or not leaves:
        return []
    random = torch.Generator().manual_seed(1)
    seeds = [torch.randn(one.shape, dtype=one.dtype, generator=random) for one in smooth]
    found = torch.autograd.grad(smooth, [*leaves.values()], seeds, allow_unused=True)
    return [name for name, g in zip(leaves, found, strict=True) if g is not None and bool((g != 0).any())]


@contextlib.contextmanager
def uninitialised_is_nan() -> Iterator[None]:
    """Have torch fill uninitialized memory with NaN, or with the largest integer."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
