"""Every diagnostic code, and what `tritongen explain` says of it.

1xx structure of a spec, 2xx names and syntax of expressions, 3xx axes, 4xx dtypes, 5xx schedule,
6xx math that no family can plan, 7xx the generated tree, 8xx settings and paths, 9xx (warnings) costs,
0xx `tritongen import`.
"""

from __future__ import annotations

from .code import Code, row
from .cost_codes import COSTS
from .family_codes import FAMILIES
from .import_codes import IMPORTS
from .math_codes import AXES, DTYPES, NAMES
from .structure_codes import STRUCTURE

_SCHEDULE = (
    row(
        "TG406",
        "an unsupported use of float8",
        """
        float8_e4m3fn and float8_e5m2 (`float8` for both) are dtypes of inputs and of results. Their values
        are exact in float32, in which they are computed; beside a float of another input they take its
        dtype. They promote to nothing by themselves, and nothing but a result is rounded to them.

            w = "float8|float16[N, K]"  # wrong
            w = "float8[N, K]"

            [outputs]
            y = "auto"                  # wrong where all floats of the math are float8
            y = "bfloat16"
            y = "float8_e4m3fn"
        """,
    ),
    row(
        "TG501",
        "a size that is not a power of two",
        """
        Triton's tiles and warps come in powers of two. A tile may be larger than the data: what is
        outside is masked.

            block_n = 1000     # wrong
            block_n = 1024
        """,
    ),
    row(
        "TG502",
        "a number outside its limits",
        """
        A tile has at most 1048576 elements on a side and a program at most 32 warps.
        """,
    ),
    row(
        "TG503",
        "a tile that is too large",
        """
        Triton tensors have at most 1048576 elements, and block_m * block_n is one of them. The
        largest of each list count together, since every pair is a candidate.

            block_m = 1024
            block_n = 4096     # wrong: 4194304 elements
        """,
    ),
    row(
        "TG504",
        "numbers of a schedule that are never chosen",
        """
        A warning. Without `autotune = true`, rules choose among the columns that [schedule] lists, and, for
        matmuls, among the blocks; of other lists, launches take the first number, since only a search tells
        which is faster. Rows that are held in registers are as long as they are, whatever block_n says, and
        tiles that hold full rows of a fixed length are as wide.

            num_warps = [4, 8]    # 8 is never chosen
            num_warps = 8

            num_warps = [4, 8]
            autotune = true
        """,
    ),
    row(
        "TG505",
        "a schedule that the backward does not follow",
        """
        A warning. [schedule] lists tiles and warps of the forward. Kernels of the gradient have measured tables
        of their own, which `autotune = true` searches as well.
        """,
    ),
)

_TREE = (
    row(
        "TG701",
        "a file that is out of date",
        """
        The spec, the settings or tritongen itself changed since the file was generated. A runtime is
        stale where another version of tritongen wrote it: build all of its operators with one version.
        Run `tritongen build`.
        """,
    ),
    row(
        "TG702",
        "a missing file",
        """
        The spec generates this file, or operators import it from the runtime, and it is missing. Run
        `tritongen build`.
        """,
    ),
    row(
        "TG703",
        "a file that no spec generates any more",
        """
        Its header says that tritongen generated it, but its spec is gone, has been renamed or now
        generates other files. `tritongen build` removes it, if this project wrote it and it is where it
        was written.
        """,
    ),
    row(
        "TG704",
        "a file that was edited by hand",
        """
        The digest in its header does not match its text, so `tritongen build` refuses to overwrite
        what may be somebody's work. Move the change into the spec, or the file out of the folder;
        `git checkout` undoes it, and `tritongen build --force` overwrites it. If a formatter did
        it, exclude the generated folder there.
        """,
    ),
    row(
        "TG705",
        "a file in the way that tritongen did not write",
        """
        A spec generates a file of this name, but the existing one has no header of tritongen's, so
        `build` does not overwrite it. Move it, rename the op, or build with --force.
        """,
    ),
    row(
        "TG706",
        "two specs for one folder",
        """
        Every op has the folder of its name, whatever the spec's file is called. Two specs have the
        same name (or differ in case only, which is one folder on some systems).
        """,
    ),
    row(
        "TG707",
        "a folder that belongs to another spec",
        """
        The folder was generated from a spec that still exists but is not being built now. Build
        both together if one of them got another name; else rename one. Names that differ in case
        alone are one folder to some file systems.
        """,
    ),
    row(
        "TG708",
        "a link where a generated folder goes",
        """
        Files are not written through a symbolic link, which may point anywhere.
        That holds for the folder of an operator and for that of the runtime. Put a folder in its
        place, or set `out` to where the generated folders are to be.
        """,
    ),
    row(
        "TG710",
        "generated files that this project did not put there",
        """
        A file's header says from which spec, by which project and to which path it was written. Of a
        copy, and of a project whose spec is gone, this is another path or another project. Nothing keeps
        such files up to date, and `build` neither removes nor exports them: move them out of the generated
        folder, or remove them.
        """,
    ),
    row(
        "TG711",
        "a kernel that does not compile for a GPU",
        """
        `tritongen compile` found a kernel that Triton refuses for a target, or one that needs more
        shared memory than its programs can have there. Name tiles that fit in [schedule], or leave the
        target out. Of specs without a [schedule] this is a bug of tritongen: please report it.
        """,
    ),
    row(
        "TG712",
        "a kernel that got worse than kernels.lock has it",
        """
        Compiled again, a kernel has more bytes of local memory in each thread (registers that are
        spilled), its widest load or store is narrower, or it does not use tensor cores any more. Look
        at what changed: the spec, tritongen, or Triton. `tritongen compile --update` accepts it.
        """,
    ),
    row(
        "TG713",
        "a kernel that kernels.lock lacks, or that is not launched any more",
        """
        The benchmarks of an operator launch other kernels, or the same in other configurations, than
        when kernels.lock was written. `tritongen compile --update` writes them, and leaves the lines of
        other operators and targets as they are.
        """,
    ),
    row(
        "TG714",
        "no kernels.lock, or one that cannot be read",
        """
        `tritongen compile --check` compares with the file that `tritongen compile --update` wrote beside
        the settings. Its first line says which sizes of the benchmarks were compiled, and by which
        Triton; each of the others is a kernel. Restore it from version control, or write it anew.
        """,
    ),
    row(
        "TG715",
        "a kernel that does not compute the spec's math",
        """
        `tritongen formula` runs kernels in Triton's interpreter over residues of integers in place of floats, where
        sums and products round nothing, and compares with the math of the spec to the last bit. A case of a test
        of the operator found another number: the kernels, of this configuration at least, compute something else.
        A finding in kernels that nobody edited is a bug of tritongen.
        """,
    ),
)

_SETTINGS = (
    row(
        "TG801",
        "settings that are not valid TOML",
        """
        `tritongen.toml`, or `pyproject.toml` where it has [tool.tritongen], cannot be read.
        """,
    ),
    row(
        "TG802",
        "an invalid setting",
        """
        The settings are, with their defaults:

            specs = ["specs"]      # folders and files
            out = "generated"
            line-length = 88       # black's
            tests = true           # false leaves tests and benchmarks out
            runtime = "shared"     # or "folder": a _runtime/ in each operator's folder; "file": one file for each
        """,
    ),
    row(
        "TG803",
        "no such spec",
        """
        Neither a file nor a folder is there. Without paths, commands take the specs of the settings
        that are found upward from here, or `specs/` in the current folder.
        """,
    ),
    row(
        "TG804",
        "settings in two files",
        """
        `tritongen.toml`, which `tritongen init` writes, and [tool.tritongen] of the `pyproject.toml` in the
        same folder both have settings. Keep one of them. Of settings in several folders, those nearest
        to a spec hold.
        """,
    ),
)

_TABLES = (IMPORTS, STRUCTURE, NAMES, AXES, DTYPES, _SCHEDULE, FAMILIES, _TREE, _SETTINGS, COSTS)
CODES: dict[str, Code] = {one.code: one for table in _TABLES for one in table}
# By the first digit of the codes.
TOPICS = {
    "0": "import",
    "1": "structure",
    "2": "names",
    "3": "axes",
    "4": "dtypes",
    "5": "schedule",
    "6": "kernels",
    "7": "files",
    "8": "settings",
    "9": "costs",
}


def of_topic(topic: str) -> list[Code]:
    return [one for one in CODES.values() if TOPICS[one.code[2]] == topic]
