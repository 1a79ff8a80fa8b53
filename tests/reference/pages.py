"""Generated pages of the reference, each with the function that makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.helpers.import_order import ROOT
from tests.reference.command_page import command_page
from tests.reference.config_pages import settings_page, stream_page
from tests.reference.connect_page import connect_page
from tests.reference.error_page import error_page
from tests.reference.measure_page import measure_page

DOCS = ROOT / "docs"
PAGES: Mapping[str, Callable[[], str]] = {
    "reference/stream-file.md": stream_page,
    "reference/settings.md": settings_page,
    "reference/commands.md": command_page,
    "reference/measures.md": measure_page,
    "reference/errors.md": error_page,
    "reference/connect-keys.md": connect_page,
}
GENERATED = frozenset({*PAGES, "reference/modules.md"})
"""Pages that nobody writes by hand; `python -m tests.module_list` makes the last."""
