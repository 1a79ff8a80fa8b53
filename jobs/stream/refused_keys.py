"""Refusal of keys by the store amid a batch: the batch is run once more, with others of the catalog."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from jobs.commit.target import Target
from jobs.errors import FrazilError
from jobs.write.file_access import refused_keys

log = logging.getLogger(__name__)

Result = TypeVar("Result")


def once_more_with_new_keys(action: Callable[[], Result], targets: Iterable[Target], what: str) -> Result:
    """Do something, and once more if a store refuses the keys of a table's files and the catalog has others.

    A catalog need not say when the keys that it hands out will end; tasks cannot ask it.

    Args:
        action: Leaves nothing behind when it fails.
        targets: Whose keys are renewed.
        what: Is done, for the log.

    Raises:
        Exception: As of `action`.
    """
    try:
        return action()
    except FrazilError:
        raise
    except Exception as problem:
        if (word := refused_keys(str(problem))) is None:
            raise
        # All of them, whichever was refused.
        renewed = [target.renew_access(refused=True) for target in targets]
        if not any(renewed):
            raise
        log.warning("%s: the store said %s, and is asked again with new keys of the catalog", what, word)
    return action()
