"""What a comparison with the source is told as: why keys are unsettled, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.mirror.source_consistency import SourceConsistency
from jobs.mirror.source_text import source_fix, source_sentence
from tests.unit.spec.test_mirror import spec


@pytest.mark.parametrize(
    ("behind", "reached", "why", "fix"),
    [
        (False, 0x20, "perhaps by changes on their way, as the mirror has come to 0/20", "frazil mirror status"),
        (False, None, "perhaps by changes on their way, as the mirror names no position", "frazil mirror status"),
        (True, 0x20, "the source that was asked is behind the mirror: a standby that lags", "see that source shop is"),
    ],
)
def test_why_keys_are_unsettled(tmp_path: Path, behind: bool, reached: int | None, why: str, fix: str) -> None:
    found = SourceConsistency(
        "shop.customers", "shop, table public.customers", 64, 5, 4, 0x10, reached, behind, {}, {"missing": 1}, 1, 0,
        (), ("id",), (),
    )  # fmt: skip
    assert why in source_sentence(found)
    assert str(source_fix(spec(tmp_path), found, changelog_agrees=True, letters=0)).startswith(fix)
