"""Opening record: who has the stream under its new epoch, and the file that it runs under, kept for who looks back."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from jobs.errors import FrazilError
from jobs.spec.generation import generation
from jobs.spec.loading import find_stream_file, load_stream
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.epochs import DRIVER, EpochRecord, Opener, keep_epoch, keep_file
from jobs.stream.open_stream import OpenStream
from jobs.supervise.driver_session import DRIVER_VARIABLE
from jobs.supervise.launches import SPEC_FILE


def keep_opening(stream: OpenStream, opener: Opener) -> None:
    """Keep what the stamps of this epoch will name by hashes, before the first of them is committed."""
    store, spec = stream.folder.store, stream.spec
    text = _text(spec, stream.settings, stream.folder.root / SPEC_FILE)
    keep_file(store, stream.config, stream.generation, text)
    keep_epoch(
        store,
        EpochRecord(
            stream.epoch,
            _numbered(opener),
            stream.config,
            stream.generation,
            time.time(),
            socket.gethostname(),
            os.getpid(),
        ),
    )


def _numbered(opener: Opener) -> Opener:
    """A driver with the number of its launch, which whoever launched it has put into its environment."""
    attempt = os.environ.get(DRIVER_VARIABLE, "").rpartition(":")[2]
    return Opener(attempt=int(attempt)) if opener == DRIVER and attempt.isdigit() else opener


def _text(spec: StreamSpec, settings: Settings, launched: Path) -> str:
    """The text of the file that the stream was read from; one that says the same if it is found nowhere any more."""
    wanted = spec.config_hash, generation(spec, settings)
    for path in _files(spec, settings, launched):
        with contextlib.suppress(FrazilError, OSError, UnicodeError):
            text, found = path.read_text(encoding="utf-8"), load_stream(path)
            if (found.config_hash, generation(found, settings)) == wanted:
                return text
    said = spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return "# The stream's file had been changed when this was kept; it said the same.\n" + yaml.safe_dump(
        said, sort_keys=False
    )


def _files(spec: StreamSpec, settings: Settings, launched: Path) -> Iterator[Path]:
    """A driver was launched with a copy of its own; `frazil run` and Dagster read the stream's file."""
    yield launched
    if (file := find_stream_file(settings.home / "streams", spec.stream)) is not None:
        yield file
