"""Unexpected error of a command, as a sentence with the file that holds the stack trace."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import traceback
from pathlib import Path

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.private_files import private_folder, private_opener
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from resources.deployment import Deployment

FOLDER = "errors"
_KEPT = 20
_SENTENCE = 300


def unexpected_error(problem: Exception, command: str, deployment: Deployment | None) -> FrazilError:
    """An error as a sentence, its stack trace written to a file that only its owner may read; never raises.

    Args:
        command: The command without its arguments, such as `frazil run`.
        deployment: Whose secrets are taken out of both, and in whose state folder the file goes; None if unknown.
    """
    settings: Settings | None = None
    with contextlib.suppress(Exception):
        settings = deployment.settings() if deployment is not None else None

    def clean(text: str) -> str:
        return redacted(settings, text) if settings is not None else text

    said = clean(_said(problem))
    said = said if len(said) <= _SENTENCE else f"{said[:_SENTENCE]}…"
    trace = clean("".join(traceback.format_exception(problem)))
    file = _written(trace, settings.state / FOLDER if settings is not None else None)
    what = f"{command} failed with an error that frazil does not know: {said}"
    if file is None:
        # Nowhere to write to: then here, as it would be lost otherwise.
        return FrazilError(f"{what}\n{trace}", fix="free space, or correct the rights on the state folder")
    return FrazilError(
        f"{what}\n  The stack trace is in {file}.", fix="if the sentence does not help, report it with that file"
    )


def is_interrupt(problem: BaseException) -> KeyboardInterrupt | None:
    """The interrupt behind an error that only reports that the interrupt came at a bad moment.

    An interrupt that comes while Python takes a lock again, as at the end of a wait for a thread, leaves the lock open;
    whoever gives it back then raises this in place of the interrupt.
    """
    cause = problem.__context__
    if isinstance(problem, RuntimeError) and "release un" in str(problem) and isinstance(cause, KeyboardInterrupt):
        return cause
    return None


def _said(problem: Exception) -> str:
    if isinstance(problem, OSError) and problem.strerror:
        place = f"{problem.filename}: " if problem.filename else ""
        return f"{place}{problem.strerror} ({type(problem).__name__})"
    return f"{type(problem).__name__}: {first_line(problem, 'no reason given')}"


def _written(trace: str, folder: Path | None) -> Path | None:
    name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    # The state folder may be what is wrong.
    for place in filter(None, (folder, Path(tempfile.gettempdir()))):
        with contextlib.suppress(OSError):
            if place == folder:
                private_folder(place)
                for old in sorted(place.glob("*.txt"))[: 1 - _KEPT or None]:
                    old.unlink(missing_ok=True)
            file = place / (name if place == folder else f"frazil-{name}")
            with open(file, "x", encoding="utf-8", opener=private_opener) as out:
                out.write(trace)
            return file
    return None
