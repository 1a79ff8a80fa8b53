"""Locations of tables on local disks, and the check that the state folder does not lie in one."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlparse

from jobs.errors import FrazilError


def local_folder(location: str) -> Path | None:
    """The folder of a table's or a warehouse's location; None if it is not on a local file system.

    Args:
        location: A path, or a URI such as `file:///data/warehouse`.
    """
    parsed = urlparse(location)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return None if "://" in location or parsed.scheme else Path(location)


def state_under(location: str, state: Path) -> bool:
    """Whether the state folder lies in a table's location, or is it: removing orphan files would take it away.

    Links are followed, as far as there are any.

    Args:
        location: Of the table, or of the warehouse.
        state: The deployment's state folder; it need not exist.
    """
    folder = local_folder(location)
    if folder is None or not str(location):
        return False
    return Path(os.path.realpath(state)).is_relative_to(os.path.realpath(folder))


def state_in_the_way(state: Path, place: str) -> FrazilError:
    """The error for a state folder that lies within the location `place`, a table's or the warehouse's."""
    return FrazilError(
        f"the state folder {state} with its leases and checkpoints lies within {place}, where the removal of orphan "
        "files would take it away",
        fix="set `state` in frazil.yaml to a folder elsewhere, and move there what is in it",
    )
