"""Folder of a deployment: where it is, and which streams its files name; read without loading any model."""

from __future__ import annotations

import re
from pathlib import Path

STREAMS_FOLDER = "streams"
HOME_VARIABLE = "FRAZIL_HOME"
SETTINGS_VARIABLE = "FRAZIL_SETTINGS"
# Only valid stream names: a shell types what completion offers.
_STREAM = re.compile(r"""^stream:[ \t]*["']?([\w.-]+)["']?[ \t]*(?:#.*)?$""", re.MULTILINE)


def deployment_home(home: Path | None) -> Path:
    """The absolute folder of a deployment.

    Args:
        home: The folder that the user names; None for the nearest folder upwards with `streams/`, else the current one.
    """
    if home is None:
        cwd = Path.cwd()
        home = next((folder for folder in (cwd, *cwd.parents) if (folder / STREAMS_FOLDER).is_dir()), cwd)
    return home.expanduser().absolute()


def stream_names(home: Path) -> list[str]:
    """Return the streams that the files in `streams/` name, sorted; unreadable files are left out.

    The names come from a line of text, not from a checked file. That is enough for completion, which must be quick.
    """
    names = set[str]()
    folder = home / STREAMS_FOLDER
    for path in (*folder.glob("*.yaml"), *folder.glob("*.yml")):
        try:
            named = _STREAM.search(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if named is not None:
            names.add(named[1])
    return sorted(names)
