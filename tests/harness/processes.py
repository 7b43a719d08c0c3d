"""Run Python in processes that are forked from one that has imported torch, because importing it takes seconds."""

from __future__ import annotations

import functools
import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType


def python(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Run `python` with arguments (-m MODULE, -c PROGRAM, or FILE): its exit code and output.

    torch is imported already, Triton is not, since it reads the environment when it is imported.
    """
    server = _server()
    assert server.stdin
    assert server.stdout
    with tempfile.TemporaryDirectory() as home:
        print(json.dumps([arguments, str(cwd or Path.cwd()), dict(env), home]), file=server.stdin, flush=True)
        status = int(server.stdout.readline())
        printed, errors = (Path(home, name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
    return subprocess.CompletedProcess(arguments, os.waitstatus_to_exitcode(status), printed, errors)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Start the forking process. It ends with this process, which closes the pipe."""
    hidden = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "TRITON_INTERPRET")}
    command = [sys.executable, "-P", __file__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=hidden)


def _serve() -> Sequence[str]:
    """Fork for each request; in the fork, this returns the arguments."""
    for line in sys.stdin:
        arguments, cwd, environment, home = json.loads(line)
        child = os.fork()
        if not child:
            _enter(cwd, environment, home)
            return list(arguments)
        print(os.waitpid(child, 0)[1], flush=True)
    return ()


def _enter(cwd: str, environment: Mapping[str, str], home: str) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[:0] = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for place, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{home}/{name}", os.O_WRONLY | os.O_CREAT), place)


def _run(kind: str, *rest: str) -> None:
    if kind == "-m":
        sys.argv = [*rest]
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(rest[0], vars(main))
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, str(Path(kind).parent))
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    import torch  # noqa: F401

    gc.freeze()  # Else the garbage collector of a fork would copy all pages by writing to them.
    if request := _serve():
        _run(*request)
