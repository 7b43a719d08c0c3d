"""What the template of an operator's pytest file sees of its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .backward import Backward
from .ir import Op
from .modules import Module
from .samples import Shapes


def gradient_view(op: Op, backward: Backward | None, parts: Sequence[Module], shapes: Shapes) -> dict[str, Any]:
    if backward is None:
        return {"gradient": False, "modules": ()}
    inputs = [tensor.name for tensor in op.inputs]
    wrt = tuple(inputs.index(name) for name in backward.gradient.wrt)
    kinds = {kind for part in parts for kind in part.traffic.kinds}
    splits = any(part.view.get("partial") for part in parts)
    return {
        "gradient": True,
        "modules": ("configs_backward",) if parts else (),
        "wrt": repr(wrt),
        "some_wrt": [(place,) for place in wrt] if len(wrt) > 1 else [],
        "parts": bool(parts),
        "tiny": shapes.tiny(),
        "gradcheck": all(set(r.dtype.of) <= set(inputs) for r in op.results if r.dtype.kind == "float"),
        "backward_configs": [config for kind in _KINDS if kind in kinds for config in _KINDS[kind](shapes, splits)],
    }


def _flat(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    return [
        {
            "kind": "flat",
            "argument": '"config"',
            "choices": '[*configs_backward.FLAT, triton.Config({"BLOCK": 16})]',
            "ids": ", ids=label",
            "signature": "config: triton.Config",
            "lines": ['monkeypatch.setattr(configs_backward, "choose_flat", lambda *_: config)'],
            "inputs": f"make({shapes.wide()})",
        }
    ]


def _tile(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    return [
        {
            "kind": "tile",
            "argument": '"config"',
            "choices": '[*configs_backward.TILE, triton.Config({"BLOCK_M": 2, "BLOCK_N": 32})]',
            "ids": ", ids=label",
            "signature": "config: triton.Config",
            "lines": ['monkeypatch.setattr(configs_backward, "choose_tile", lambda *_: config)'],
            "inputs": f"map(scattered, make({shapes.wide()}))",
        }
    ]


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
        {
            "kind": "register",
            "argument": '("elements", "num_warps")',
            "choices": "[config[1:] for config in configs_backward.REGISTERS]",
            "ids": "",
            "signature": "elements: int, num_warps: int",
            "lines": choose,
            "inputs": f"make({shapes.wide()})",
        }
    ]


def _loop(shapes: Shapes, splits: bool) -> list[dict[str, Any]]:
    lines = ['monkeypatch.setattr(configs_backward, "in_registers", lambda *_: False, raising=False)']
    lines += ['monkeypatch.setattr(configs_backward, "choose_loop", lambda *_: config)']
    counts = '[*configs_backward.LOOP, triton.Config({"BLOCK_M": 2, "BLOCK_N": 32})]'
    loop = {
        "kind": "loop",
        "argument": '"config"',
        "choices": counts,
        "ids": ", ids=label",
        "signature": "config: triton.Config",
        "lines": lines + (['monkeypatch.setattr(configs_backward, "choose_splits", lambda *_: 1)'] if splits else []),
        "inputs": f"make({shapes.wide()})",
    }
    if not splits:
        return [loop]
    small = 'triton.Config({"BLOCK_M": 2, "BLOCK_N": 32})'
    split = loop | {
        "kind": "split",
        "argument": '"n_splits"',
        "choices": "[2, 3, 8]",
        "ids": "",
        "signature": "n_splits: int",
        "lines": [
            'monkeypatch.setattr(configs_backward, "in_registers", lambda *_: False, raising=False)',
            f'monkeypatch.setattr(configs_backward, "choose_loop", lambda *_: {small})',
            'monkeypatch.setattr(configs_backward, "choose_splits", lambda *_: n_splits)',
        ],
    }
    return [loop, split]


def _whole(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    registers = _registers(shapes, False)[0]
    lines = [line.replace(", contiguous: bool", "") for line in registers["lines"]]
    lines[-1] = 'monkeypatch.setattr(configs_backward, "choose_whole", choose)'
    programs = 'monkeypatch.setattr(configs_backward, "choose_programs", lambda *_: 2)'
    choices = "[config[1:] for config in configs_backward.WHOLE]"
    return [registers | {"kind": "whole", "choices": choices, "lines": [*lines, programs]}]


def _sums(shapes: Shapes, _: bool) -> list[dict[str, Any]]:
    tile = _tile(shapes, False)[0]
    lines = [
        'monkeypatch.setattr(configs_backward, "is_whole", lambda *_: False, raising=False)',
        'monkeypatch.setattr(configs_backward, "choose_sums", lambda *_: config)',
        'monkeypatch.setattr(configs_backward, "choose_programs", lambda *_: 3)',
    ]
    choices = '[*configs_backward.SUMS, triton.Config({"BLOCK_M": 2, "BLOCK_N": 32})]'
    return [tile | {"kind": "sums", "choices": choices, "lines": lines, "inputs": f"make({shapes.wide()})"}]


_KINDS = {"flat": _flat, "tile": _tile, "registers": _registers, "loop": _loop, "whole": _whole, "sums": _sums}
