"""The facts of a compiled kernel (its use of the GPU), read from PTX, cubin or AMD assembly."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

TILE = 128  # bytes that count for a TMA access, which moves at least a cache line
_USAGE = {"registers": "REG", "local": "STACK"}
_TENSOR_PTX = re.compile(r"\b(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma)\b")
_TENSOR_AMD = re.compile(r"\bv_(?:mfma|smfmac|wmma)_")
# An access of global memory: load or store, number of elements, bits of an element.
_PTX = re.compile(r"\b(ld|st)\.global[.\w:]*?(?:\.v(\d))?\.[bfus](\d+)\b")
_COPY = re.compile(r"cp\.async\.c[ag]\.shared\.global\S* \[[^\]]*\], \[[^\]]*\], (0x[\da-f]+|\d+)")
_TMA = re.compile(r"cp\.async\.bulk\.tensor\.\d+d\.(shared|global)")
_AMD = re.compile(r"\b(?:global|buffer)_(load|store)_(?:d16_)?(?:hi_)?(ubyte|byte|sbyte|short|dword|b\d+)(?:x(\d))?")
_AMD_BYTES = {"ubyte": 1, "sbyte": 1, "byte": 1, "short": 2, "dword": 4}
_AMD_USAGE = {"registers": "vgpr_count", "local": "private_segment_fixed_size"}


def facts_of(compiled: Any) -> dict[str, int]:
    """The facts of a `triton.compiler.CompiledKernel`, by the names of `lock.FACTS`."""
    if "ptx" in compiled.asm:
        found, widths, tensor, code = _of_nvidia(compiled.asm["ptx"], compiled.asm["cubin"])
    else:
        found, widths, tensor, code = _of_amd(compiled.asm["amdgcn"])
    widest = {name: max((width for what, width in widths if what == name), default=0) for name in ("load", "store")}
    return found | widest | {"shared": compiled.metadata.shared, "tensor": tensor, "code": code}


_Found = tuple[dict[str, int], list[tuple[str, int]], int, int]


def _of_nvidia(ptx: str, cubin: bytes) -> _Found:
    used = _resource_usage(cubin)
    found = {name: int(re.findall(rf"\b{word}:(\d+)", used)[-1]) for name, word in _USAGE.items()}
    return found, [*_ptx_widths(ptx)], len(_TENSOR_PTX.findall(ptx)), _code_bytes(cubin)


def _ptx_widths(ptx: str) -> Iterator[tuple[str, int]]:
    for what, count, bits in _PTX.findall(ptx):
        yield ("load" if what == "ld" else "store"), int(count or 1) * int(bits) // 8
    for size in _COPY.findall(ptx):
        yield "load", int(size, 0)
    for space in _TMA.findall(ptx):
        yield ("load" if space == "shared" else "store"), TILE


def _resource_usage(cubin: bytes) -> str:
    """The output of `cuobjdump -res-usage` for a cubin; Triton ships cuobjdump."""
    import triton

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _code_bytes(cubin: bytes) -> int:
    """The total size in bytes of the .text sections of a 64-bit ELF file."""
    start, entry, count, names_at = struct.unpack_from("<Q10xHHH", cubin, 40)
    sections = [struct.unpack_from("<IIQQQQ", cubin, start + entry * place) for place in range(count)]
    names = sections[names_at][4]
    return sum(size for name, _, _, _, _, size in sections if cubin[names + name :].startswith(b".text."))


def _of_amd(assembly: str) -> _Found:
    found = {name: int(re.findall(rf"\.{word}:\s*(\d+)", assembly)[-1]) for name, word in _AMD_USAGE.items()}
    widths = [
        (what, (_AMD_BYTES.get(unit) or int(unit[1:]) // 8) * int(count or 1))
        for what, unit, count in _AMD.findall(assembly)
    ]
    code = sum(map(int, re.findall(r"; codeLenInByte = (\d+)", assembly)))
    return found, widths, len(_TENSOR_AMD.findall(assembly)), code
