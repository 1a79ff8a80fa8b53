"""Links of the docs lead to files and headings that exist, and paths in code type exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
PATH = re.compile(r"`((?:assets|bench|docs|examples|jobs|orchestration|resources|tests)/[\w./-]+)`")


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as renderers of Markdown make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_of_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    wrong = [path for path in PATH.findall(text) if not (ROOT / path).exists()]
    for target, anchor in LINK.findall(text):
        file = page.parent / target if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []


def test_pages_that_code_names_exist() -> None:
    """Messages, comments and settings lead to pages of the docs."""
    named: dict[str, Path] = {}
    for folder in ("assets", "bench", "examples", "jobs", "orchestration", "resources", "tests"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in {".py", ".toml", ".yaml"}:
                named |= dict.fromkeys(re.findall(r"\bdocs/[\w./-]+\.md\b", file.read_text(encoding="utf-8")), file)
    named |= dict.fromkeys(re.findall(r"\bdocs/[\w./-]+\.md\b", (ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    assert {page: file for page, file in named.items() if not (ROOT / page).exists()} == {}
