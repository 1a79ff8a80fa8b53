"""Errors of requests to a registry: not found, unavailable, refused, or no registry."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.base.errors import FrazilError, first_line


class NotInRegistryError(FrazilError):
    """The registry does not have an id, a subject or a version.

    Safe: Nothing was changed.
    Next: register the schema, or correct `decode.subject`
    """


class RefusedSchemaError(FrazilError):
    """The registry refuses a schema as invalid or incompatible.

    Safe: Nothing was changed.
    Next: correct the schema, or the subject's compatibility
    """


class RegistryError(FrazilError, OSError):
    """The registry gave an answer that cannot be used.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: check `registry` in the settings, then `frazil validate`
    """


class RegistryUnavailableError(RegistryError):
    """The registry does not answer, or is not healthy.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: wait, or check `registry.url`; a driver waits
    """


class RegistryWithoutSubjectError(RegistryError):
    """The registry has none of the schemas and subjects that records name. It may be a wrong one, or still loading.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: check `registry.url`, or name `decode.subject`; a driver tries again before it halts

    The driver asks again within `errors.retry`. Then it ends and is restarted some times before it is halted.
    """


class RegistryRefusedError(RegistryError):
    """The registry refuses the login, or its certificate is not trusted.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: check user, token and certificates under `registry`, then `frazil validate`
    """


class RegistryPageError(RegistryError):
    """A page of the registry does not exist, so the URL may not be a registry's.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: check `registry.url`, then `frazil validate`
    """


_WAIT = "wait until it answers; or check `registry` in frazil.yaml, then `frazil validate`"
_LOG_IN = "check the user, token or certificate under `registry:` in frazil.yaml, then `frazil validate`"
_TRUST = "check `registry: {tls: …}` in frazil.yaml, then `frazil validate`"
CHECK_ADDRESS = "check `registry: {url: …}` in frazil.yaml, then `frazil validate`"
_REFUSED_STATUS = (401, 403, 407)
_PASSING_STATUS = (408, 425, 429)
_INVALID_STATUS = (409, 422)
# TLS errors of a closed connection; all other TLS errors are about trust.
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def passes(status: int) -> bool:
    """Whether this HTTP status is a temporary failure."""
    return status >= 500 or status in _PASSING_STATUS


def answered_problem(status: int, code: int | None, said: str, registry: str) -> FrazilError:
    """Return the error for an answer of a registry.

    Args:
        status: HTTP status.
        code: The registry's error code, such as 40403; None or negative if the answer has none.
        said: Message of the registry.
        registry: Name of the registry in messages.
    """
    if status in _REFUSED_STATUS:
        return RegistryRefusedError(f"{registry} refuses us: HTTP {status}{_told(code, said)}", fix=_LOG_IN)
    if passes(status):
        return RegistryUnavailableError(f"{registry} is not well: HTTP {status}{_told(code, said)}", fix=_WAIT)
    if status == 404 and code is not None and 40400 < code < 40500:
        return NotInRegistryError(f"{registry} does not have it: {first_line(said)}")
    if status in _INVALID_STATUS:
        return RefusedSchemaError(f"{registry} does not take this schema: {first_line(said, f'HTTP {status}')}")
    kind = RegistryPageError if status == 404 else RegistryError
    return kind(f"{registry} answers as no schema registry does: HTTP {status}{_told(code, said)}", fix=CHECK_ADDRESS)


def request_problem(problem: Exception, registry: str, timeout: float) -> RegistryError:
    """Return the error for a request without a readable answer.

    Args:
        problem: Exception of the HTTP client.
        registry: Name of the service in messages.
        timeout: Time-out of the request, in seconds.
    """
    chain = list(_chain(problem))
    if any(isinstance(each, ssl.SSLError) and not isinstance(each, _HUNG_UP) for each in chain):
        said = next(first_line(each) for each in chain if isinstance(each, ssl.SSLError))
        return RegistryRefusedError(f"{registry}: no trust between us: {said}", fix=_TRUST)
    kinds = {kind.__name__ for kind in type(problem).__mro__}
    if "TimeoutException" in kinds:
        return RegistryUnavailableError(f"{registry} does not answer within {timeout:g} s", fix=_WAIT)
    if "TransportError" in kinds or isinstance(problem, OSError):
        return RegistryUnavailableError(f"{registry} cannot be reached: {first_line(problem)}", fix=_WAIT)
    # The answer is a web page, such as a sign-in form; its text is left out.
    return RegistryError(f"{registry} answers as no schema registry does ({type(problem).__name__})", fix=CHECK_ADDRESS)


def tls_problem(problem: Exception, registry: str, options: Mapping[str, Any]) -> RegistryError:
    """Return the error for certificates that cannot be loaded; OpenSSL does not name the file.

    Args:
        problem: Exception of OpenSSL.
        registry: Name of the service in messages.
        options: Options of the registry's client, with the files.
    """
    files = dict.fromkeys(str(v) for k, v in options.items() if k.startswith("ssl.") and k.endswith(".location") and v)
    said = f"its certificates cannot be used ({', '.join(files)}): {first_line(problem)}"
    return RegistryRefusedError(f"{registry}: {said}", fix=_TRUST)


def _told(code: int | None, said: str) -> str:
    # An answer without a code is a web page, not a registry's message.
    return f" ({first_line(said)})" if code is not None and code > 0 and said else ""


def _chain(problem: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        yield problem
        problem = problem.__cause__ or problem.__context__
