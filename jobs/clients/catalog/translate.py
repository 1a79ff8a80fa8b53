"""Translation of errors of disks, catalogs and their clients to one sentence for a person."""

from __future__ import annotations

import contextlib
import errno
import logging
import traceback
from collections.abc import Iterator

from jobs.base.errors import FrazilError, first_line
from jobs.config.redaction import redacted
from jobs.config.services.catalog_properties import STORE_AUTHORITIES
from jobs.config.settings.settings import Settings

log = logging.getLogger(__name__)

# By name, so that clients of unused catalogs need not be installed or imported.
_CATALOG_MODULES = (
    *("sqlalchemy.exc", "pyiceberg.exceptions", "requests.exceptions"),
    *("thrift.Thrift", "thrift.transport.TTransport"),
)
# Message of Arrow's S3 client for a certificate that no trusted authority has signed.
_UNTRUSTED = "curlCode: 60"
_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextlib.contextmanager
def translate_errors(settings: Settings, stream: str) -> Iterator[None]:
    """Turn errors of a disk or a catalog within the block into an error without a stack trace.

    frazil's own bugs are raised unchanged. The stack trace goes to the log (DEBUG).

    Args:
        settings: Settings whose secrets are redacted in messages.
        stream: Stream that the block works on.

    Raises:
        FrazilError: The disk or the catalog failed.
    """
    try:
        yield
    except FrazilError:
        raise
    except Exception as problem:
        translated = _translated(problem, settings, stream)
        if translated is None:
            raise
        log.debug("%s", redacted(settings, traceback.format_exc()))
        # Not chained: the cause would show the redacted secrets.
        raise translated from None


def _translated(problem: Exception, settings: Settings, stream: str) -> FrazilError | None:
    again = f"`frazil run {stream}`, which goes on at the tables' position"
    if any(kind.__module__ in _CATALOG_MODULES for kind in type(problem).__mro__):
        return FrazilError(
            f"stream {stream}: catalog {settings.catalog.name} failed: {type(problem).__name__}: "
            f"{redacted(settings, first_line(problem, 'no reason given'))}",
            fix=f"`frazil validate`, which asks the catalog; then {again}",
        )
    # A broken pipe is no place that failed: the reader of a command's output, such as `head`, has enough.
    if not isinstance(problem, OSError) or isinstance(problem, BrokenPipeError):
        return None
    said = redacted(settings, problem.strerror or first_line(problem))
    place = f"{problem.filename}: " if problem.filename else ""
    remedy = "free space there" if problem.errno in _FULL else "see to that place"
    if _UNTRUSTED in said:
        remedy = f"name the authority that signs the store's certificate in catalog.properties.{STORE_AUTHORITIES}"
    return FrazilError(f"stream {stream}: {place}{said}.", fix=f"{remedy}, then {again}")
