"""Locations of tables on local disks, and the check that the state folder is not inside one."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote, urlparse

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings


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
    """Whether the state folder is in a table's location, or is it: orphan removal would delete it.

    Symbolic links are followed.
    """
    folder = local_folder(location)
    if folder is None or not str(location):
        return False
    return Path(os.path.realpath(state)).is_relative_to(os.path.realpath(folder))


def state_in_the_way(location: str, settings: Settings, place: str) -> FrazilError | None:
    """The error for a state folder, or a prefix of a state store, inside a location; None if it is outside."""
    store = settings.state_store.store if settings.state_store is not None else None
    if store is not None and _below(store, location):
        return FrazilError(
            f"the state store {store} with its leases lies within {place}, where the removal of orphan files would "
            "delete it",
            fix="set `state.store` in frazil.yaml to a folder of a bucket elsewhere",
        )
    if not state_under(location, settings.state):
        return None
    return FrazilError(
        f"the state folder {settings.state} with its leases and checkpoints lies within {place}, where the removal of "
        "orphan files would delete it",
        fix="set `state` in frazil.yaml to a folder elsewhere, and move there what is in it",
    )


def _below(store: str, location: str) -> bool:
    """Whether a store's prefix is inside an object store's location; Hadoop calls the same buckets s3a and s3n."""
    scheme, _, path = location.partition("://")
    return scheme in ("s3", "s3a", "s3n") and f"{store}/".startswith(f"s3://{path.rstrip('/')}/")
