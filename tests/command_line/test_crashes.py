"""What survives a crash, a full disk and another build at the same time, and that bytes depend on none of it."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.harness.projects import FILES, SHARED, Project
from tritongen.diagnostics.report import Rejected
from tritongen.project.build import Built
from tritongen.project.tree import TEMPORARY, locked

ROOT = Path(__file__).parents[2]


def script(project: Project, body: str, seed: str = "random") -> subprocess.Popen[str]:
    """Another process that builds, with a generator of its own."""
    text = "import os, sys, time\nfrom tritongen.project import build, tree\n" + textwrap.dedent(body)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
    return subprocess.Popen(
        [sys.executable, "-c", "from tests.harness.projects import fake\n" + text],
        cwd=project.root,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_killed_while_writing(project: Project) -> None:
    """Every file is the old or the new one, and a second build completes."""
    names = [f"op{number}" for number in range(6)]
    for name in names:
        project.spec(name, "x * 2")
    project.build()
    old = {path.read_text() for path in project.out.rglob("*.py")}
    for name in names:
        project.spec(name, "x * 3")
    killed = script(
        project,
        """
        writes, replace = 0, os.replace
        def replaced(*paths):
            global writes
            writes += 1
            if writes == 8:
                os.kill(os.getpid(), 9)
            replace(*paths)
        os.replace = replaced
        build.build((), generate=fake)
        """,
    )
    assert killed.wait(60) == -9
    assert list(project.out.rglob("*.tmp"))
    found = {path.read_text() for path in project.out.rglob("*.py")}
    built = project.build()
    new = {path.read_text() for path in project.out.rglob("*.py")}
    assert found <= old | new
    assert found & old
    assert found & new
    assert built.written
    assert not list(project.out.rglob("*.tmp"))
    assert project.kinds() == []


def test_killed_while_rendering(project: Project) -> None:
    """Workers do not outlive their parent: they would hold its lock."""
    for name in ("one", "two", "three"):
        project.spec(name)
    killed = script(
        project,
        """
        def slow(spec, runtime, width):
            print(os.getpid(), flush=True)
            time.sleep(30)
            return fake(spec, runtime, width)
        build.build((), generate=slow)
        """,
    )
    assert killed.stdout
    killed.stdout.readline()
    killed.kill()
    killed.wait(60)
    started = time.monotonic()
    assert project.build().specs == 3
    assert time.monotonic() - started < 20


def test_two_builds_at_once(project: Project) -> None:
    names = [f"op{number}" for number in range(8)]
    for name in names:
        project.spec(name)
    both = [script(project, "print(build.build((), generate=fake))") for _ in range(2)]
    told = [process.communicate(timeout=60)[0] for process in both]
    assert all(process.returncode == 0 for process in both)
    assert sorted("op7/kernels.py" in one for one in told) == [False, True]
    assert project.kinds() == []
    assert not list(project.out.rglob("*.tmp"))


def test_bytes_do_not_depend_on_where_and_how(project: Project) -> None:
    trees = []
    for seed, names in (("0", "abc"), ("1", "cab")):
        other = Project(project.root / seed)
        for name in names:
            other.spec(name)
        assert script(other, "build.build((), generate=fake)", seed).wait(60) == 0
        trees.append({path.relative_to(other.out): path.read_bytes() for path in other.out.rglob("*.*")})
    assert trees[0] == trees[1]
    assert len(trees[0]) == 3 * len(FILES) + len(SHARED)


def test_left_over_temporaries(project: Project) -> None:
    project.spec("one")
    project.build()
    left = project.out / "one" / f"{TEMPORARY}1-ab.tmp"
    left.write_text("half")
    project.build()
    assert not left.exists()
    assert project.build() == Built(1)


@pytest.mark.parametrize(
    "name", [".tritongen-notes", ".tritongen-1-ab.tmp", "one/.tritongen-2-cd.tmp", "_runtime/.tritongen-3"]
)
def test_a_folder_that_begins_as_temporaries_do(project: Project, name: str) -> None:
    """It is somebody's, as is a file that only begins so."""
    project.spec("one")
    project.build()
    (project.out / name).mkdir()
    mine = project.out / ".tritongen-mine"
    mine.write_text("mine")
    project.spec("one", "x * 3")
    assert project.build().written
    assert project.build() == Built(1)
    assert (project.out / name).is_dir()
    assert mine.exists()


def test_a_build_that_waits_says_so(project: Project) -> None:
    """While another holds the folder, in whose place it may be."""
    project.spec("one")
    with locked([str(project.out)], lambda _: None):
        waiting = script(
            project,
            """
            from tritongen import cli
            from tritongen.project import render
            render.generate_modules = fake
            sys.stderr = sys.stdout
            sys.exit(cli.run(["build"]))
            """,
        )
        assert waiting.stdout
        assert waiting.stdout.readline() == "waiting for another `tritongen build`, which is writing generated/\n"
    rest = waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 0, rest
    assert "wrote generated/one/" in rest


def test_errors_name_the_file(project: Project) -> None:
    """As those of a full disk would; here it is a limit on the size of files."""
    project.spec("one")
    program = f"""
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))
        from tritongen import cli
        from tritongen.project import render
        render.generate_modules = lambda spec, runtime, width: {{"kernels.py": "X = 1"}}
        exit(cli.run({["build"]}) * 10 + cli.run({["new", "other"]}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},  # which would be cut off
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 22, done.stderr
    assert done.stderr.splitlines() == [
        f"tritongen: {project.out}/__init__.py: File too large",
        "tritongen: specs/other.toml: File too large",
    ]


def test_a_refused_build_leaves_no_folder(project: Project) -> None:
    """But for those that were there."""
    (project.root / "tritongen.toml").write_text('out = "src/ops"\n')
    project.spec("one", "wrong")
    before = sorted(project.root.rglob("*"))
    with pytest.raises(Rejected):
        project.build()
    assert sorted(project.root.rglob("*")) == before
    (project.root / "src" / "ops").mkdir(parents=True)
    with pytest.raises(Rejected):
        project.build()
    assert (project.root / "src" / "ops").is_dir()


def test_a_folder_that_a_refused_build_removes_is_made_again(project: Project) -> None:
    """By a build that has waited for that one: it holds the new folder, and not the old one."""
    project.spec("one")
    with locked([str(project.out)], lambda _: None) as alone:
        assert alone
        waiting = script(
            project,
            """
            import fcntl
            flock = fcntl.flock
            def locking(*args):
                print("waits", flush=True)
                flock(*args)
            fcntl.flock = locking
            def holding(spec, runtime, width):
                try:
                    flock(os.open("generated", os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return fake(spec, runtime, width)
            build.build((), generate=holding)
            """,
        )
        assert waiting.stdout
        assert waiting.stdout.readline() == "waits\n"
    assert waiting.wait(60) == 0
    assert project.kinds() == []
