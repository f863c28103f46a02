"""The generated reference pages agree with the code, and the site has every page."""

import re
from pathlib import Path

import pytest
import yaml

import moldau
import moldau.admin
import moldau.aio
import moldau.errors
import moldau.pipelines
import moldau.schemas
import moldau.spark
import moldau.testing
from moldau.protocol.error_codes import ErrorCode
from tools.generate_reference import PAGES, error_meanings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MODULES = {
    "moldau": moldau,
    "aio": moldau.aio,
    "admin": moldau.admin,
    "errors": moldau.errors,
    "pipelines": moldau.pipelines,
    "schemas": moldau.schemas,
    "spark": moldau.spark,
    "testing": moldau.testing,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_generated_page_is_up_to_date(page: Path) -> None:
    """If this fails: `make protocol`."""
    assert page.read_text(encoding="utf-8") == PAGES[page]()


def test_every_error_code_has_a_meaning() -> None:
    assert set(error_meanings()) == {code.name for code in ErrorCode}


def test_errors_and_log_lines_are_among_the_messages() -> None:
    content = (DOCS / "reference" / "error-messages.md").read_text(encoding="utf-8")
    for message, kind in [
        ("wakeup() was called", "WakeupError"),
        ("expected a topic name, a str that is not empty, got &lt;topic>", "ClientError"),
        ("broker … is fenced: its session has expired", "WARNING"),
        ("&lt;path> is not a directory", "FormatError"),
    ]:
        assert f"| {message} | {kind} |" in content


def test_every_public_name_is_in_the_python_reference() -> None:
    for name, module in MODULES.items():
        page = (DOCS / "reference" / "python" / f"{name}.md").read_text(encoding="utf-8")
        documented = set(re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE))
        public = {each for each in module.__all__ if not each.startswith("__")}
        assert documented == {f"{module.__name__}.{each}" for each in public}


def test_the_sites_navigation_names_every_page() -> None:
    # Only the navigation: other parts of the file may have tags of MkDocs's own.
    _, _, nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    listed = set(re.findall(r"([\w./-]+\.md)$", nav, re.MULTILINE))
    assert yaml.safe_load(nav)
    assert listed == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}


def test_files_that_pages_name_exist() -> None:
    named = re.compile(
        r"`((?:benchmarks|docs|examples|protocol|requirements|src|tests|tools)/[^`*\s]+)`"
    )
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for target in named.findall(page.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{page.relative_to(ROOT)} names {target}"


def test_decisions_have_one_format() -> None:
    index = (DOCS / "adr" / "index.md").read_text(encoding="utf-8")
    for page in DOCS.glob("adr/0*.md"):
        content = page.read_text(encoding="utf-8")
        head = rf"# {int(page.name[:4])}\. (.+)\n\n- Status: (\w+)\n- Date: ([\d-]+)\n"
        found = re.match(head, content)
        assert found is not None, page.name
        title, status, date = found.groups()
        assert f"[{title}]({page.name}) | {status} | {date} |" in index
        sections = re.findall(r"^## (.+)$", content, re.MULTILINE)
        assert sections[:3] == ["Context", "Decision", "Consequences"], page.name
        assert sections[3:] in ([], ["Alternatives considered"]), page.name
