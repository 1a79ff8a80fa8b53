"""Errors of a schema registry: what it does not know, and why it gave no answer that could be used.

What is no record's fault is an OSError, so that it passes through a pipeline and fails the batch.
"""

from __future__ import annotations

from jobs.errors import FrazilError


class NotInRegistryError(FrazilError):
    """The registry was asked, and does not have it: an id, a subject, a version."""


class RefusedSchemaError(FrazilError):
    """The registry takes no such schema: it is none, or it is incompatible with an earlier version."""


class RegistryError(FrazilError, OSError):
    """The registry gave no answer that could be used, and a person has to see to it."""


class RegistryUnavailableError(RegistryError):
    """The registry cannot be reached, or is not well: trying again is likely to help."""


class RegistryWithoutSubjectError(RegistryError):
    """The registry answers, and has nothing of what a stream's records name: it may be another one, or still be filled.

    It is asked again within `errors.retry`; then the driver ends and is started again some times, before it is halted.
    """


class RegistryRefusedError(RegistryError):
    """The registry does not let us in, or its certificate is not trusted."""


class RegistryPageError(RegistryError):
    """An HTTP 404 that is not the registry's own word: what was asked is no page of it, or it is no registry."""
