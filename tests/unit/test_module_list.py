"""The list of modules and the drawing of the packages are what the code says."""

from __future__ import annotations

import pytest

from tests.helpers.import_order import LAYERS, package_files
from tests.module_list import DRAWING, PAGE, first_line, module_page, package_drawing


def test_every_module_says_what_it_is() -> None:
    files = [path for layer in LAYERS for path in package_files(layer)]
    assert [str(path) for path in files if path.stat().st_size and not first_line(path)] == []


@pytest.mark.parametrize(
    ("file", "written"), [(PAGE, module_page), (DRAWING, package_drawing)], ids=["page", "drawing"]
)
def test_the_page_and_the_drawing_are_up_to_date(file, written) -> None:
    assert file.read_text(encoding="utf-8") == written(), "run: python -m tests.module_list"
