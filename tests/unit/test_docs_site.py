"""The site of docs/: it builds without a broken link, its menu has every page, and it needs no other host."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = ["frazil", "Get started", "How-to", "Reference", "Explanation", "Runbooks"]
FETCHED = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)="(https?:)?//', re.IGNORECASE)
NAMED = re.compile(r'<link rel="(?:canonical|prev|next|alternate)"[^>]*>', re.IGNORECASE)


def menu() -> list[dict[str, Any]]:
    return tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]


def pages(entry: object) -> Iterator[str]:
    """Pages of an entry of the menu, in order."""
    if isinstance(entry, str):
        yield entry
        return
    for below in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from pages(below)


def test_the_menu_has_each_page_once_in_the_sections_order() -> None:
    written = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
    assert [name for entry in menu() for name in entry] == SECTIONS
    assert sorted(pages(menu())) == written


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)


def copied_site(folder: Path) -> Path:
    shutil.copy(ROOT / "zensical.toml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    return folder


def test_the_site_builds_with_every_link_and_needs_no_other_host(tmp_path: Path) -> None:
    built = build(copied_site(tmp_path))
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "build" / "site"
    html = {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert len(html) > Counter(pages(menu())).total()
    assert (site / "search.json").is_file()
    fetched = {
        str(page.relative_to(site)): found
        for page, text in html.items()
        if (found := FETCHED.findall(NAMED.sub("", text)))
    }
    assert fetched == {}
    # Loaded from another host by the theme where a page has a diagram of this language.
    assert [page for page, text in html.items() if 'class="mermaid"' in text] == []


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    page = copied_site(tmp_path) / "docs" / "architecture.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[a page](nowhere.md)\n", encoding="utf-8")
    built = build(tmp_path)
    assert built.returncode != 0
    assert "page does not exist" in built.stdout + built.stderr
