"""Service-discovery file of a driver for Prometheus, in the format of `file_sd_configs`.

Each driver has a file of its own, so two drivers never write the same file, even if two deployments share a folder. A
killed driver leaves its file. So its target counts as down until the next driver replaces the file, or somebody stops
the stream.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from zlib import crc32

from jobs.clients.state_store.durable_files import put_in_place, staged
from jobs.config.settings.settings import Settings

log = logging.getLogger(__name__)

FOLDER = "metrics"
# A closed port on loopback refuses at once.
_ANSWER_SECONDS = 0.5


def target_folder(settings: Settings) -> Path:
    """Folder of the files of all drivers of this machine."""
    return settings.metrics.folder or settings.state / FOLDER


def target_file(settings: Settings, label: str) -> Path:
    """A driver's file.

    Args:
        label: The stream's name, or `group:NAME`.
    """
    name = label.replace(":", ".")
    if settings.metrics.folder is not None:
        # Another deployment on this machine may have a stream of the same name.
        name = f"{name}.{crc32(os.fsencode(settings.state.resolve())):08x}"
    return target_folder(settings) / f"{name}.json"


@contextlib.contextmanager
def announced(settings: Settings, label: str, url: str) -> Iterator[None]:
    """Publish a driver's file until the end of the block. An error of the folder is only logged.

    Args:
        label: The stream's name, or `group:NAME`.
        url: URL of the driver's metrics.
    """
    path, shared = target_file(settings, label), settings.metrics.folder is not None
    content = json.dumps([{"targets": [urlsplit(url).netloc], "labels": {"driver": label}}]).encode()
    try:
        if shared:
            path.parent.mkdir(parents=True, exist_ok=True)
        put_in_place(staged(path, content, durable=False, shared=shared), path, durable=False)
    except OSError as problem:
        log.warning("Prometheus does not find this driver: %s: %s", path, problem.strerror)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            # A driver that took over meanwhile has written its own file there.
            if path.read_bytes() == content:
                path.unlink()


def withdraw(settings: Settings, label: str) -> None:
    """Remove the file of a killed driver. The file of a driver that answers stays.

    Args:
        label: The stream's name, or `group:NAME`.
    """
    path = target_file(settings, label)
    with contextlib.suppress(OSError, ValueError, LookupError):
        host, _, port = json.loads(path.read_bytes())[0]["targets"][0].rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS).close()
        except OSError:
            path.unlink()
