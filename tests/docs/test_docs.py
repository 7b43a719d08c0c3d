"""The documents say what is so: their tables are current, their specs build, their commands exist."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.harness.importing import module_at
from tritongen.cli import cli
from tritongen.operator.compile import check
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
WRITTEN = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGE = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
PAGES = {"README.md": README, "docs/spec.md": PAGE, "docs/guide.md": GUIDE}
SPECS = [
    pytest.param(block, id=f"{name}-{number}")
    for name, page in PAGES.items()
    for number, block in enumerate(re.findall(r"```toml\n(.*?)```", page, re.DOTALL))
    if "[op]" in block
]


@pytest.mark.parametrize("name", PAGES)
def test_the_tables_are_current(name: str) -> None:
    tables = module_at(ROOT / "docs" / "tables.py")
    assert tables.current(PAGES[name]) == PAGES[name], "run `python docs/tables.py`"


def test_the_gallery_is_counted() -> None:
    found = re.search(r"a gallery of (\d+) operators", README)
    assert found is not None
    assert int(found[1]) == len(list((ROOT / "specs").glob("*.toml")))


def test_the_plot_is_of_the_table() -> None:
    plot = module_at(ROOT / "docs" / "plot.py")
    assert (ROOT / "docs" / "gallery.svg").read_text(encoding="utf-8") == plot.drawn(), "run `python docs/plot.py`"


def test_every_table_is_there() -> None:
    made = {"operators", "functions", "reductions", "codes", "commands"}
    assert set(re.findall(r"<!-- table: (\w+) -->", README + PAGE)) == made


@pytest.mark.parametrize("text", SPECS)
def test_specs_type_check(text: str) -> None:
    check(read_spec("spec.toml", text))


def test_every_section_of_the_language_has_a_spec() -> None:
    assert len(SPECS) >= 8
    shown = "\n".join(spec.values[0] for spec in SPECS if isinstance(spec.values[0], str))
    tables = "op types inputs params compute outputs grad reference schedule test torch".split()
    assert not [table for table in tables if f"[{table}]" not in shown]


def test_the_commands_are_those_of_the_program() -> None:
    """What pages tell to run exists, with the options that they give."""
    told = "\n".join(PAGES.values())
    lines = re.findall(
        r"\btritongen (?!--)([a-z]+) ?([^`\n&|]*)", "\n".join(re.findall(r"`tritongen [^`]+`|run: .*", told))
    )
    assert {command for command, _ in lines} == set(cli.commands)
    for command, rest in lines:
        known = {option for one in cli.commands[command].params for option in one.opts}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, command
    told = CliRunner().invoke(cli, ["--help"]).output
    assert all(f"\n  {command} " in told for command in cli.commands)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_spec_and_the_kernel_side_by_side_are_those_of_the_repository() -> None:
    table = README[README.index("<table>") : README.index("</table>")]
    places = re.findall(r"(?:specs|generated)/[\w/]+\.\w+", table)
    blocks = re.findall(r"```(?:toml|python)\n(.*?)```", table, re.DOTALL)
    spec, kernel = ((ROOT / place).read_text(encoding="utf-8") for place in places)
    assert blocks[0] == spec
    parts = blocks[1].split("    …\n")  # What is left out of the kernel.
    assert len(parts) == 2
    assert parts[0] in kernel
    assert parts[1] in kernel[kernel.index(parts[0]) :]
