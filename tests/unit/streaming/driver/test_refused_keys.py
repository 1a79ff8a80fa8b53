"""A batch whose keys the store refuses is run once more, if the catalog has others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.streaming.driver.batch.retry import once_more_with_new_keys

REFUSED = OSError("AWS Error INVALID_ACCESS_KEY_ID during CreateMultipartUpload operation: no such key")


class Keys:
    """Of a table; `others`: whether the catalog has others."""

    def __init__(self, others: bool) -> None:
        self.others: bool = others
        self.asked: int = 0

    def renew_access(self, *, refused: bool) -> bool:
        assert refused
        self.asked += 1
        return self.others


def failing(*problems: Exception) -> Callable[[], str]:
    """What fails so, and then is done."""
    left = list(problems)

    def action() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return action


@pytest.mark.parametrize(
    ("problems", "others", "done", "asked"),
    [
        ((), True, True, 0),
        ((REFUSED,), True, True, 1),
        ((REFUSED,), False, False, 1),
        ((REFUSED, REFUSED), True, False, 1),
        ((OSError("AWS Error SLOW_DOWN during PutObject operation"),), True, False, 0),
        # frazil's own words, whatever they quote.
        ((FrazilError("somebody said ACCESS_DENIED"),), True, False, 0),
    ],
)
def test_it_is_done_once_more_with_other_keys(
    problems: tuple[Exception, ...], others: bool, done: bool, asked: int
) -> None:
    # One of two tables has no other keys than before.
    targets: list[Any] = [Keys(others), Keys(False)]
    if done:
        assert once_more_with_new_keys(failing(*problems), targets, "batch 7") == "done"
    else:
        with pytest.raises(type(problems[-1]), match=str(problems[-1])):
            once_more_with_new_keys(failing(*problems), targets, "batch 7")
    assert [each.asked for each in targets] == [asked, asked]
