"""Redaction of secrets in errors and logs: catalogs, drivers and clients may quote their own settings."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from urllib.parse import quote

from jobs.base.errors import FrazilError
from jobs.base.system.mounted import texts_read
from jobs.config.documents.secrets import Secret, WrittenSecret
from jobs.config.settings.settings import Settings, secret_references


def redacted(settings: Settings, text: str, also: Iterable[Secret] = ()) -> str:
    """Replace the values of all secrets of the settings, and of further ones, by their references."""
    for secret in (*secret_references(settings), *also):
        text = _without(secret, text)
    return text


def _without(secret: Secret, text: str) -> str:
    shown = str(secret)
    try:
        value = secret.reveal()
    except FrazilError:
        value = ""
    # A template may contain more than the secret: the whole text first, then present and former values of its parts.
    variables = [os.environ.get(name, "") for name in secret.names]
    if isinstance(secret, WrittenSecret):
        variables += [value for _, value in secret.variables]
    for part in [value, *variables, *(text for path in secret.files for text in texts_read(path))]:
        if part:
            # In plain form, and as it is quoted within a URI.
            text = text.replace(part, shown).replace(quote(part, safe=""), shown)
    return text


class RedactingFormatter(logging.Formatter):
    """Formatter that redacts the secrets of the settings in lines and stack traces; times are in UTC.

    Args:
        settings: Settings with the secrets.
        line: Format of a line, in the notation of `logging`.
        also: Further secrets, such as those of a stream's file.
    """

    converter = time.gmtime

    def __init__(
        self,
        settings: Settings,
        line: str = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s",
        also: Iterable[Secret] = (),
    ) -> None:
        super().__init__(line, "%Y-%m-%dT%H:%M:%S")
        self._settings: Settings = settings
        self._also: tuple[Secret, ...] = tuple(also)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        return redacted(self._settings, super().format(record), self._also)
