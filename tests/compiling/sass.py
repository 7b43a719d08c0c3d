"""Whether what tensor cores of Hopper read was written: descriptors of matrices in the machine code of kernels.

    python -m tests.compiling.sass CUBIN [CUBIN ...]

A matmul of a warp group reads its matrices in shared memory by descriptors in uniform registers. ptxas 12.8 has left
out writes of these on the way past a loop that has no turns: PTX, layouts and values in an emulator were right, and on
the GPU the rows of some tiles were wrong. So here the values of registers go along every path of the machine code, as
far as is needed to see that a descriptor was written on each, and that its upper half is on each one that Triton makes:
what was in a register before is hardly that. Paths that conditions exclude count, too.
"""

from __future__ import annotations

import functools
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import triton

# The upper half of a descriptor: how rows are swizzled, which they always are, and how far apart groups of eight are.
SWIZZLED, REST = 0xC0000000, 0x3FFFC000
MOST = 8  # numbers of one register that are told apart
BITS = 0xFFFFFFFF
NUMBER = r"-?(0x[\da-f]+|\d+)"
# What descriptors are made and moved by. Of others it is not known what they make.
KNOWN = {"MOV", "UMOV", "R2UR", "STL", "LDL", "CS2R", "IMAD", "SEL", "USEL", "SHFL", "LOP3", "ULOP3", "IADD3", "UIADD3"}
# What has a register first that it does not write.
READERS = ("ST", "RED", "UTMA", "SYNCS.ARRIVE", "WARPGROUP", "BAR", "BRX", "BSSY", "BSYNC", "UCGABAR", "UBLKCP")

# A value is the exclusive or of a number and of what is not known, by where that was made.
Value = tuple[int, frozenset[str]]
Values = frozenset[Value]
UNWRITTEN: Value = (0, frozenset({"nothing"}))
NOTHING: Values = frozenset({UNWRITTEN})
ZERO: Values = frozenset({(0, frozenset())})
State = dict[str, Values]


@dataclass
class Instruction:
    at: str
    predicate: str  # "" where it is always executed
    name: str  # with its suffixes
    operands: tuple[str, ...]
    targets: tuple[str, ...]  # the labels that it names
    needed: list[str] = field(default_factory=list)  # what it writes of that descriptors are made by

    @functools.cached_property
    def base(self) -> str:
        return self.name.partition(".")[0]

    @property
    def leaves(self) -> bool:
        """Whether what follows is not executed next."""
        jumps = self.base in ("BRX", "EXIT", "RET", "BSYNC") or (self.base == "BRA" and len(self.operands) == 1)
        return jumps and not self.predicate

    @functools.cached_property
    def suffixes(self) -> list[str]:
        return self.name.split(".")[1:]

    @functools.cached_property
    def given(self) -> list[str]:
        """What it reads but for predicates."""
        return [operand for operand in self.operands[1:] if not re.fullmatch(r"!?U?P(\d|T)", operand)]

    @functools.cached_property
    def descriptors(self) -> tuple[int, ...]:
        """The first of the two registers of each: one of what is multiplied from the left, if that is not in registers,
        and one of what is multiplied from the right.
        """
        found = re.search(r"gdesc\[UR(\d+)\]", " ".join(self.operands))
        first = int(found[1]) if found else 0
        return () if not found else (first, first + 2) if self.operands[1].startswith("gdesc") else (first + 2,)

    @functools.cached_property
    def written(self) -> list[str]:
        count = counted(self.name)
        if self.base == "STL":
            return slots(self.operands[0], count)
        match = re.fullmatch(r"(U?R)(\d+)", self.operands[0]) if self.operands else None
        return following(match, count) if match and not self.name.startswith(READERS) else []

    @functools.cached_property
    def read(self) -> list[str]:
        if self.base == "LDL":
            return slots(self.operands[1], counted(self.name))
        found = re.finditer(r"\b(U?R)(\d+)\b", " ".join(self.operands[1:]))
        return [name for match in found for name in following(match, counted(self.name))]


def following(match: re.Match[str], count: int) -> list[str]:
    return [f"{match[1]}{int(match[2]) + place}" for place in range(count)]


def half(register: str) -> str:
    """The second of two registers."""
    name = re.fullmatch(r"UR(\d+)", register)
    return f"UR{int(name[1]) + 1}" if name else register


def slots(address: str, count: int) -> list[str]:
    """What of a thread's own memory is read or written, four bytes each; [] where that is not known."""
    match = re.fullmatch(r"\[R1(?:\+0x([\da-f]+))?\]", address)
    return [f"[{int(match[1] or '0', 16) + 4 * place}]" for place in range(count)] if match else []


def counted(name: str) -> int:
    """How many registers an instruction writes, from the first on."""
    if shape := re.match(r"[HQI]GMMA\.64x(\d+)x\d+\.(\w+)", name):
        return int(shape[1]) // (4 if shape[2] == "F16" else 2)
    if name.startswith("LDSM"):
        return int(name[-1])
    if name.startswith(("HMMA", "IMMA", "DMMA")):
        return 4
    if re.match(r"D(ADD|MUL|FMA)|MUFU\.\w+64|[FI]2[FI]\.\w*[FSU]64", name):
        return 2
    wide = {".128": 4, ".64": 2, ".WIDE": 2, "CS2R": 2}
    return next((count for part, count in wide.items() if part in name), 1)


Blocks = dict[str, list[Instruction]]


def blocks_of(sass: str) -> Blocks:
    """The instructions of a kernel behind each label, in order; the first label is empty. Of those without part in the
    control flow, those that descriptors are made by.
    """
    blocks: Blocks = {"": []}
    found = blocks[""]
    for line in sass.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            found = blocks[label[1]] = []
        elif match := re.match(r"\s+/\*(\w+)\*/\s+(?:@(!?U?P\w+) )?\s*([\w.]+)(.*);(.*)", line):
            at, predicate, name, operands, note = match.groups()
            listed = tuple(one.strip() for one in operands.replace(".reuse", "").split(",") if one.strip())
            targets = tuple(re.findall(r"\.L_x_\d+", operands + note))
            found.append(Instruction(at, predicate or "", name, listed, targets))
    keep_needed([one for block in blocks.values() for one in block])
    return {
        label: [one for one in block if one.needed or one.descriptors or one.targets or one.leaves]
        for label, block in blocks.items()
    }


def keep_needed(instructions: Sequence[Instruction]) -> None:
    """Tell each what it writes of that descriptors are made by."""
    writers: dict[str, list[Instruction]] = {}
    for one in instructions:
        for register in one.written:
            writers.setdefault(register, []).append(one)
    waiting = [f"UR{first + half}" for one in instructions for first in one.descriptors for half in (0, 1)]
    needed: set[str] = set()
    while waiting:
        if (register := waiting.pop()) in needed:
            continue
        needed.add(register)
        for one in writers.get(register, ()):
            one.needed.append(register)
            if one.base in KNOWN:
                waiting += one.read


def ways_on(blocks: Blocks) -> dict[str, list[tuple[int, str]]]:
    """Where each block may be left, by how many of its instructions are over, and for which."""
    found: dict[str, list[tuple[int, str]]] = {}
    for label, following in itertools.pairwise([*blocks, "the end"]):
        ways = found[label] = []
        for count, one in enumerate(blocks[label], 1):
            if one.base == "BSYNC":
                ways += [(count, target) for target in meeting_points(blocks, one.operands[0], following)]
            elif one.base != "BSSY":
                ways += [(count, target) for target in one.targets]
            if one.leaves:
                break
        else:
            ways.append((len(blocks[label]), following))
    return found


def meeting_points(blocks: Blocks, barrier: str, following: str) -> tuple[str, ...]:
    """Where threads go on that wait for one another: what follows, as far as it is for that."""
    waits = [one for block in blocks.values() for one in block if one.base == "BSSY" and one.operands[0] == barrier]
    targets = tuple(one.targets[0] for one in waits)
    return (following,) if following in targets else targets


class Machine:
    """What the registers of a warp may hold."""

    def __init__(self, state: State) -> None:
        self.state = state

    def read(self, operand: str) -> Values:
        """Of a register, or of what else the instruction names."""
        return self.state.get(operand, NOTHING) if (value := constant(operand)) is None else value

    def step(self, one: Instruction) -> None:
        if not one.needed:
            return
        made = dict(zip(one.written, values, strict=True)) if (values := self.made(one)) else {}
        for register in one.needed:
            where = f"{one.at} {register}"
            value = made.get(register) or unknown(where)
            self.state[register] = merged(where, value | self.read(register)) if one.predicate else merged(where, value)

    def made(self, one: Instruction) -> list[Values]:
        """What an instruction writes; [] where that is not known."""
        suffixes, given = one.suffixes, one.given
        match one.base:
            case "MOV" | "UMOV" | "R2UR":
                return [self.read(given[0])]
            case "STL" | "LDL":
                return [self.read(name) for name in one.read]
            case "CS2R" if given == ["SRZ"]:
                return [ZERO] * counted(one.name)
            case "IMAD" if suffixes in (["U32"], ["MOV", "U32"], ["MOV"], ["X"]) and given[:2] == ["RZ", "RZ"]:
                return [self.read(given[2])]
            case "SEL" | "USEL":
                return [self.read(given[0]) | self.read(given[1])]
            case "SHFL" if suffixes == ["IDX"]:  # of what all threads of a warp have
                return [self.read(given[0])]
            case "LOP3" | "ULOP3":
                return [self.bits(one, given)]
            case "IADD3" | "UIADD3" if suffixes in ([], ["X"]):
                # No carry: what is added to the lower half of a descriptor leaves its address in 14 bits.
                return [self.total(one, given)]
            case "UIADD3" if suffixes == ["64"] and given[2] == "URZ":
                return [unknown(f"{one.at} lower") | unwritten(self.read(given[0])), self.upper(one, *given[:2])]
        return []

    def upper(self, one: Instruction, descriptor: str, change: str) -> Values:
        """The upper half of a descriptor and a number of 64 bits, which may be taken from it."""
        before = self.read(half(descriptor))
        if re.fullmatch(NUMBER, change):
            return before
        is_less = change.startswith("-")
        lower, upper = self.read(change.lstrip("-")), self.read(half(change.lstrip("-")))
        # As above, the sum of lower halves is an address: one of more than 31 bits has a carry, which it takes there.
        carries = any(number > BITS >> 1 for number, _ in lower)
        if is_less:
            upper = frozenset((-number & BITS, symbols) for number, symbols in upper)
        rest = frozenset({((-carries if is_less else carries) & BITS, frozenset[str]())})
        sums = (added(one, added(one, x, y), z) for x in before for y in upper for z in rest)
        return frozenset(sums)

    def bits(self, one: Instruction, given: Sequence[str]) -> Values:
        table = next((int(operand, 0) for operand in given[3:] if re.fullmatch(NUMBER, operand)), -1)
        a, b, c = (self.read(operand) for operand in given[:3])
        if table == 0x3C:
            return frozenset((x ^ y, p ^ q) for x, p in a for y, q in b)
        if table < 0 or any(symbols for _, symbols in a | b | c):
            return unknown(one.at) | unwritten(a | b | c)
        return frozenset((chosen(table, x, y, z), frozenset()) for x, _ in a for y, _ in b for z, _ in c)

    def total(self, one: Instruction, given: Sequence[str]) -> Values:
        found = ZERO
        for operand in given[:3]:
            found = frozenset(added(one, x, y) for x in found for y in self.read(operand))
        return found


@functools.cache
def constant(operand: str) -> Values | None:
    """A number of an instruction; None for a register. "-" and the like make something that is not known."""
    if operand in ("RZ", "URZ", "SRZ"):
        return ZERO
    if re.fullmatch(NUMBER, operand):
        return frozenset({(int(operand, 0) & BITS, frozenset())})
    return None if re.fullmatch(r"U?R\d+|\[\d+\]", operand) else unknown(operand)


@functools.cache
def unknown(where: str) -> Values:
    return frozenset({(0, frozenset({where}))})


def unwritten(values: Values) -> Values:
    return frozenset(one for one in values if "nothing" in one[1])


def added(one: Instruction, x: Value, y: Value) -> Value:
    if not x[1] | y[1]:
        return (x[0] + y[0]) & BITS, frozenset()
    if "nothing" in x[1] | y[1]:
        return UNWRITTEN
    return x if y == (0, frozenset()) else y if x == (0, frozenset()) else (0, frozenset({one.at}))


def chosen(table: int, x: int, y: int, z: int) -> int:
    """What a table of eight bits makes of the bits of three numbers."""
    found = 0
    for place in range(8):
        if table >> place & 1:
            found |= (x if place & 4 else ~x) & (y if place & 2 else ~y) & (z if place & 1 else ~z)
    return found & BITS


def states_at_blocks(blocks: Blocks) -> dict[str, State]:
    """What registers may hold where each block begins. One that is not there was not written on any path."""
    ways, places = ways_on(blocks), {label: place for place, label in enumerate(blocks)}
    states: dict[str, State] = {"": {}}
    waiting = {""}
    while waiting:
        waiting.remove(label := min(waiting, key=places.__getitem__))
        machine, done = Machine(dict(states[label])), 0
        for count, target in ways[label]:
            for one in blocks[label][done:count]:
                machine.step(one)
            done = count
            if target in blocks and joined(states, target, machine.state):
                waiting.add(target)
    return states


def joined(states: dict[str, State], target: str, more: State) -> bool:
    """Whether a path has brought to a block what others have not."""
    if target not in states:
        states[target] = dict(more)
        return True
    state, changed = states[target], False
    for register in {*state, *more}:
        before, new = state.get(register, NOTHING), more.get(register, NOTHING)
        if new <= before:
            continue
        after = merged(f"{target} {register}", before | new)
        changed |= after != before
        state[register] = after
    return changed


def merged(where: str, values: Values) -> Values:
    """What comes along one path or another: several numbers, or one thing that is not known."""
    if len(values) == 1:
        return values
    written = values - NOTHING
    is_known = len(written) <= MOST and not any(symbols for _, symbols in written)
    return values if is_known or len(written) == 1 else unknown(where) | values & NOTHING


def mistakes(sass: str) -> Iterator[str]:
    """Of each matmul whose descriptors are not written on some path, or otherwise than on others."""
    blocks = blocks_of(sass)
    for label, state in states_at_blocks(blocks).items():
        machine = Machine(dict(state))
        for one in blocks[label]:
            for place in one.descriptors:
                lower, upper = (machine.read(f"UR{number}") for number in (place, place + 1))
                if unwritten(lower | upper):
                    yield f"{one.at} {one.name} reads UR{place} and UR{place + 1}, which a path does not write"
                elif not all(is_upper(value) for value in upper):
                    told = sorted("?" if symbols else hex(value) for value, symbols in upper)
                    yield f"{one.at} {one.name} reads UR{place + 1}, which is {', '.join(told)}"
            machine.step(one)


def is_upper(value: Value) -> bool:
    number, symbols = value
    return not symbols and number & SWIZZLED != 0 and number & REST == 0


def disassembled(cubin: bytes) -> str:
    """The machine code of a kernel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [triton.knobs.nvidia.nvdisasm.path, "-c", str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    for path in sys.argv[1:]:
        found = list(mistakes(disassembled(Path(path).read_bytes())))
        print(f"{path}: {len(found)} mistakes", *found, sep="\n  ")


if __name__ == "__main__":
    main()
