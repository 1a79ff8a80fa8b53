"""Epochs of a stream: who opened it under which epoch, and the files and settings that it ran under, by their hashes.

A stamp says epoch, configuration hash and generation. These documents say which process that was, and what stood in the
stream's file; they are for people who look back, and nothing is decided by them. A file's text and the settings may be
kept: secrets stand in them as references.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from jobs.base.system.typed_json import typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore

MOST_EPOCHS = 500
MOST_FILES = 200
MOST_SETTINGS = 50


class Opener(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who opens a stream.

    Attributes:
        what: `driver`, `frazil run` or `Dagster run`.
        attempt: The launch of a driver.
        run_id: Of a Dagster run that drains the stream.
    """

    what: str = "driver"
    attempt: int | None = None
    run_id: str | None = None


DRIVER, COMMAND = Opener(), Opener("frazil run")


class EpochRecord(msgspec.Struct, frozen=True):
    """One opening of a stream.

    Attributes:
        config: Hash of what makes the rows.
        generation: Of the whole configuration.
        at: Seconds since 1970.
    """

    epoch: int
    opener: Opener
    config: str
    generation: str
    at: float
    host: str
    pid: int


_DECODER = typed_decoder(EpochRecord)


def keep_epoch(store: StateStore, record: EpochRecord) -> None:
    """Keep who opened the stream; of all openings the newest `MOST_EPOCHS` are kept.

    Args:
        store: The stream's part of the state store.
    """
    store.put(_epoch_key(record.epoch), msgspec.json.encode(record))
    _keep_newest(store, "epochs/*.json", MOST_EPOCHS, lambda key: (0.0, key))


def read_epoch(store: StateStore, epoch: int) -> EpochRecord | None:
    """Who opened the stream under this epoch; None if it is not kept."""
    with contextlib.suppress(*DAMAGED):
        return _DECODER.decode(store.get(_epoch_key(epoch)) or b"")
    return None


def keep_file(store: StateStore, config: str, generation: str, text: str) -> None:
    """Keep the text of the stream's file under the hashes that stamps carry; the `MOST_FILES` used last are kept.

    Where only what no hash counts was changed, such as a comment, the text is that of the last opening.
    """
    store.put(_file_key(config, generation), text.encode())
    _keep_newest(store, "configurations/*.yaml", MOST_FILES, lambda key: (store.written_at(key) or 0.0, key))


def read_file(store: StateStore, config: str, generation: str) -> str | None:
    """The stream's file as it was under these hashes; under the first alone if the second says nothing; or None."""
    exact = store.get(_file_key(config, generation))
    if exact is None:
        # What made the rows is the same; what paced and bounded the batches may not be.
        others = store.keys(f"configurations/{config}-*.yaml")
        exact = store.get(max(others, key=lambda key: store.written_at(key) or 0.0)) if others else None
    return None if exact is None else exact.decode(errors="replace")


def has_exact_file(store: StateStore, config: str, generation: str) -> bool:
    """Whether the file is kept that had both hashes."""
    return store.get(_file_key(config, generation)) is not None


def keep_settings(store: StateStore, generation: str, settings: Mapping[str, Any]) -> None:
    """Keep the settings that count in a generation; the newest `MOST_SETTINGS` are kept."""
    if store.create_if_absent(_settings_key(generation), msgspec.json.encode(settings)):
        _keep_newest(store, "settings/*.json", MOST_SETTINGS, lambda key: (store.written_at(key) or 0.0, key))


def read_settings(store: StateStore, generation: str) -> dict[str, Any] | None:
    """The settings that count in a generation; None if they are not kept."""
    with contextlib.suppress(*DAMAGED):
        return msgspec.json.decode(store.get(_settings_key(generation)) or b"", type=dict[str, Any])
    return None


def _keep_newest(store: StateStore, pattern: str, most: int, age: Callable[[str], tuple[float, str]]) -> None:
    keys = store.keys(pattern)
    if len(keys) > most:
        for key in sorted(keys, key=age)[: len(keys) - most]:
            store.delete(key)


def _epoch_key(epoch: int) -> str:
    return f"epochs/{epoch:08d}.json"


def _file_key(config: str, generation: str) -> str:
    return f"configurations/{config}-{generation or 'none'}.yaml"


def _settings_key(generation: str) -> str:
    return f"settings/{generation}.json"
