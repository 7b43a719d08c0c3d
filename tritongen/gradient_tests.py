"""What the template of an operator's pytest file sees of its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .backward import Backward
from .emitted_tests import products_view
from .modules import Module
from .samples import Shapes
from .structure import Program


def gradient_view(
    program: Program, backward: Backward | None, parts: Sequence[Module], shapes: Shapes
) -> dict[str, Any]:
    if backward is None:
        return {"gradient": False, "modules": (), "backward_descriptors": False}
    op = program.op
    inputs = [tensor.name for tensor in op.inputs]
    wrt = tuple(inputs.index(name) for name in backward.gradient.wrt)
    kinds = {kind for part in parts for kind in part.traffic.kinds}
    splits = any(part.view.get("partial") for part in parts)
    tests = [config for kind in _KINDS if kind in kinds for config in _KINDS[kind](shapes, splits)]
    is_ahead = backward.write != "backward"
    if is_ahead:
        tests.append(_scaled(shapes))
    if "pointers" in kinds:
        by_kernel = any(part.view.get("whose") for part in parts)
        tests += _products(products_view(program, shapes), kinds, by_kernel)
    return {
        "gradient": True,
        "modules": (),
        "wrt": repr(wrt),
        "some_wrt": [(place,) for place in wrt] if len(wrt) > 1 else [],
        "parts": bool(parts),
        "ahead": is_ahead,
        "in_place": backward.write == "in_place",
        # What is overwritten must not be the test's own.
        "handed": "copies(given)" if backward.write == "in_place" else "given",
        "computed": next((inputs.index(name) for name in backward.gradient.wrt if _is_computed(backward, name)), None),
        "tiny": shapes.tiny(),
        # It subtracts results, which bools have not.
        "gradcheck": all(r.dtype.kind != "bool" for r in op.results)
        and all(set(r.dtype.of) <= set(inputs) for r in op.results if r.dtype.kind == "float"),
        "backward_configs": tests,
        "backward_descriptors": "descriptors" in kinds,
    }


def _is_computed(backward: Backward, name: str) -> bool:
    """Whether a gradient is a kernel's, and no gradient of a result as it came."""
    return any(result.output.name in backward.spelled[name] for part in backward.parts for result in part.op.results)


SMALL = '{"BLOCK_M": 2, "BLOCK_N": 32}'


def _set(rule: str, choice: str, raising: str = "") -> str:
    """A line that makes a rule of the backward choose something."""
    return f'monkeypatch.setattr(configs_backward, "{rule}", lambda *_: {choice}{raising})'


def _unless_missing(rule: str) -> str:
    return _set(rule, "False", ", raising=False")


def _configs(kind: str, lines: list[str], inputs: str, small: str = SMALL) -> dict[str, Any]:
    """A test of every configuration of a table, and of a small one."""
    return {
        "kind": kind,
        "mark": "",
        "argument": '"config"',
        "choices": f"[*configs_backward.{kind.upper()}, triton.Config({small})]",
        "ids": ", ids=label",
        "signature": "config: triton.Config",
        "lines": lines,
        "inputs": inputs,
    }


def _flat(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    return [_configs("flat", [_set("choose_flat", "config")], f"make({shapes.wide()})", '{"BLOCK": 16}')]


def _tile(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    return [_configs("tile", [_set("choose_tile", "config")], f"map(scattered, make({shapes.wide()}))")]


def _scaled(shapes: Shapes) -> dict[str, Any]:
    """Of what multiplies gradients that are there: programs that share rows."""
    lines = [_set("choose_tile", f"triton.Config({SMALL})"), _set("choose_splits", "n_splits")]
    counted = {"argument": '"n_splits"', "choices": "[2, 3, 8]", "ids": "", "signature": "n_splits: int"}
    return _configs("scaled", lines, f"make({shapes.wide()})") | counted


def _registers(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    choose = [
        "",
        "def choose(n_rows: int, n_cols: int, contiguous: bool) -> triton.Config:",
        "    block_n = triton.next_power_of_2(n_cols)",
        '    return triton.Config({"BLOCK_M": max(1, elements // block_n), "BLOCK_N": block_n}, num_warps)',
        "",
        'monkeypatch.setattr(configs_backward, "choose_registers", choose)',
    ]
    return [
        _configs("register", choose, f"make({shapes.wide()})")
        | {
            "argument": '("elements", "num_warps")',
            "choices": "[config[1:] for config in configs_backward.REGISTERS]",
            "ids": "",
            "signature": "elements: int, num_warps: int",
        }
    ]


def _loop(shapes: Shapes, splits: bool) -> list[dict[str, Any]]:
    lines = [_unless_missing("in_registers"), _set("choose_loop", "config")]
    loop = _configs("loop", lines + [_set("choose_splits", "1")] * splits, f"make({shapes.wide()})")
    split = loop | {
        "kind": "split",
        "argument": '"n_splits"',
        "choices": "[2, 3, 8]",
        "ids": "",
        "signature": "n_splits: int",
        "lines": [
            _unless_missing("in_registers"),
            _set("choose_loop", f"triton.Config({SMALL})"),
            _set("choose_splits", "n_splits"),
        ],
    }
    return [loop, split] if splits else [loop]


def _whole(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    table = 'monkeypatch.setattr(configs_backward, "WHOLE", ((2**20, *config),))'
    whole = _configs("whole", [table, _set("choose_whole_programs", "2")], f"make({shapes.wide()})")
    choices = "[config[1:] for config in configs_backward.WHOLE]"
    return [whole | {"choices": choices, "ids": "", "signature": "config: tuple[int, int, int]"}]


def _shared(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    """Programs that wait for one another run at once on a GPU alone: in the interpreter, each row has one."""
    choose = [
        "",
        "def choose(n_cols: int, _: int) -> triton.Config:",
        "    block_n = triton.next_power_of_2(-(-n_cols // members))",
        '    return triton.Config({"MEMBERS": members, "BLOCK_M": 1, "BLOCK_N": block_n}, 4)',
        "",
        _unless_missing("is_whole"),
        _set("use_shared", 'members == 1 or DEVICE == "cuda"'),
        'monkeypatch.setattr(configs_backward, "choose_shared", choose)',
        _set("choose_groups", "2"),
    ]
    counted = {"argument": '"members"', "choices": "[1, 3, 8]", "ids": "", "signature": "members: int"}
    return [_configs("shared", choose, f"make({shapes.wide()})") | counted]


def _sums(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    lines = [_unless_missing("is_whole"), _set("choose_sums", "config"), _set("choose_programs", "3")]
    return [_configs("sums", lines, f"make({shapes.wide()})")]


def _products(view: dict[str, Any], kinds: set[str], by_kernel: bool) -> list[dict[str, Any]]:
    """Of matrix products, whose small tile is that of the tests of the forward."""
    shape = view["tiled"][1]
    half, single = f"make({shape}{view['half']})", f"make({shape}{view['single']})"
    descriptors = "descriptors" in kinds
    by_pointers = [_set("use_descriptors", "False")] * descriptors
    pointed = [*by_pointers, *_chosen("choose_pointers", by_kernel), _set("choose_parts", "1")]
    usual = _configs("pointers", pointed, half) | {"kind": "pointer"}
    tests = [usual | _of_table("POINTERS", by_kernel)]
    tests.append(usual | _of_table("POINTERS_WIDE", by_kernel) | {"kind": "wide_pointer", "inputs": single})
    lines = [*by_pointers, _set("choose_pointers", "SMALL"), _set("choose_parts", "n_parts")]
    counted = {"argument": '"n_parts"', "choices": "[2, 3]", "ids": "", "signature": "n_parts: int"}
    tests.append(usual | counted | {"kind": "parts", "lines": lines})
    described = [_set("use_descriptors", "True"), *_chosen("choose_descriptors", by_kernel)]
    one = usual | {"kind": "descriptor", "mark": "@described", "lines": described}
    tests += [one | _of_table("DESCRIPTORS", by_kernel)] * descriptors
    shares = "(tiles - tiles // 2 - tiles // 4, long_parts, tiles // 4, short_parts)"
    choice = f'monkeypatch.setattr(configs_backward, "choose_shares", lambda tiles, *_: {shares})'
    lines = [described[0], _set("choose_descriptors", "SMALL"), choice]
    counted = {"argument": '("long_parts", "short_parts")', "choices": "[(1, 3), (5, 2)]", "ids": ""}
    counted["signature"] = "long_parts: int, short_parts: int"
    return tests + [one | counted | {"kind": "shares", "lines": lines}] * ("shares" in kinds)


def _of_table(table: str, by_kernel: bool) -> dict[str, str]:
    """What a test of each configuration is given; the small one is tested with either of half precision."""
    name = f"configs_backward.{table}"
    if not by_kernel:
        return {"choices": name if table == "POINTERS_WIDE" else f"[*{name}, SMALL]"}
    choices = f"[(kernels, config) for kernels, own in {name}.items() for config in own]"
    return {
        "argument": '("kernels", "config")',
        "choices": choices,
        "ids": ", ids=lambda one: one if isinstance(one, str) else label(one)",
        "signature": "kernels: str, config: triton.Config",
    }


def _chosen(rule: str, by_kernel: bool) -> list[str]:
    """Lines that have some kernels take a configuration, and others, which may have no room for it, a small one."""
    if not by_kernel:
        return [_set(rule, "config")]
    choice = "config if args[-1] == kernels else SMALL"
    return [f'monkeypatch.setattr(configs_backward, "{rule}", lambda *args: {choice})']


_KINDS = {
    "flat": _flat,
    "tile": _tile,
    "registers": _registers,
    "loop": _loop,
    "whole": _whole,
    "shared": _shared,
    "sums": _sums,
}
