"""History of a stream's epochs: who opened it in each epoch, and its files and settings by their hashes.

A stamp has epoch, configuration hash and generation. These documents name the process and keep the text of the stream's
file and the settings. They are for people who look back; frazil decides nothing by them. Secrets are references there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from jobs.base.system.typed_json import decode_json, typed_decoder
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.store import StateStore

MOST_EPOCHS = 500
MOST_FILES = 200
MOST_SETTINGS = 50


class Opener(msgspec.Struct, frozen=True, omit_defaults=True):
    """Process that opens a stream.

    Attributes:
        what: `driver`, `frazil run`, `frazil takeover` or `Dagster run`.
        attempt: Launch of a driver.
        run_id: Id of a Dagster run that makes a one-off run.
    """

    what: str = "driver"
    attempt: int | None = None
    run_id: str | None = None


DRIVER, COMMAND, TAKEOVER = Opener(), Opener("frazil run"), Opener("frazil takeover")


class EpochRecord(msgspec.Struct, frozen=True):
    """One opening of a stream.

    Attributes:
        config: Hash of all keys that change rows.
        generation: Hash of the whole configuration.
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
    """Record who opened the stream; the newest `MOST_EPOCHS` records are kept.

    Args:
        store: The stream's part of the state store.
    """
    store.put(_epoch_key(record.epoch), msgspec.json.encode(record))
    _keep_newest(store, "epochs/*.json", MOST_EPOCHS, lambda key: (0.0, key))


def read_epoch(store: StateStore, epoch: int) -> EpochRecord | None:
    """Return who opened the stream in an epoch; None if there is no record."""
    with contextlib.suppress(*DAMAGED):
        return _DECODER.decode(store.get(_epoch_key(epoch)) or b"")
    return None


def keep_file(store: StateStore, config: str, generation: str, text: str) -> None:
    """Keep the text of the stream's file under the hashes in stamps; the `MOST_FILES` used last are kept.

    If only parts without influence on the hashes were changed, such as a comment, the text of the last opening is kept.
    """
    store.put(_file_key(config, generation), text.encode())
    _keep_newest(store, "configurations/*.yaml", MOST_FILES, lambda key: (store.written_at(key) or 0.0, key))


def read_file(store: StateStore, config: str, generation: str) -> str | None:
    """Return the stream's file with these hashes, else one with the same `config`; None if neither is kept."""
    exact = store.get(_file_key(config, generation))
    if exact is None:
        # All keys that change rows are the same; those that pace and limit batches may differ.
        others = store.keys(f"configurations/{config}-*.yaml")
        exact = store.get(max(others, key=lambda key: store.written_at(key) or 0.0)) if others else None
    return None if exact is None else exact.decode(errors="replace")


def has_exact_file(store: StateStore, config: str, generation: str) -> bool:
    """Whether the file with both hashes is kept."""
    return store.get(_file_key(config, generation)) is not None


def keep_settings(store: StateStore, generation: str, settings: Mapping[str, Any]) -> None:
    """Keep the settings that count in a generation; the newest `MOST_SETTINGS` are kept."""
    if store.create_if_absent(_settings_key(generation), msgspec.json.encode(settings)):
        _keep_newest(store, "settings/*.json", MOST_SETTINGS, lambda key: (store.written_at(key) or 0.0, key))


def read_settings(store: StateStore, generation: str) -> dict[str, Any] | None:
    """The settings that count in a generation; None if they are not kept."""
    with contextlib.suppress(*DAMAGED):
        return decode_json(store.get(_settings_key(generation)) or b"", dict[str, Any])
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
