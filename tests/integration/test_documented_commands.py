"""Commands of the docs: each one runs, and prints what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import read_page
from tests.docs.reader import ROOT, Reader
from tests.docs.worlds import world

pytestmark = pytest.mark.integration
PAGES = [
    page
    for page in sorted([ROOT / "README.md", *ROOT.glob("docs/get-started/*.md"), *ROOT.glob("docs/how-to/*.md")])
    if page.exists() and read_page(page).commands
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    document = read_page(page)
    with world(document.services, tmp_path) as names, Reader(tmp_path, names) as reader:
        assert not (problems := reader.follow(document)), problems[0]
