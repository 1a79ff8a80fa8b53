from __future__ import annotations

import ssl

import httpx2
import pytest

from jobs.base.errors import FrazilError
from jobs.clients.registry.failures import (
    NotInRegistryError,
    RefusedSchemaError,
    RegistryError,
    RegistryPageError,
    RegistryRefusedError,
    RegistryUnavailableError,
    answered_problem,
    request_problem,
)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, 40401, NotInRegistryError),
        (404, 40402, NotInRegistryError),
        (404, 40403, NotInRegistryError),
        (404, 404, RegistryPageError),
        (404, -1, RegistryPageError),
        (404, None, RegistryPageError),
        (401, 401, RegistryRefusedError),
        (403, 40301, RegistryRefusedError),
        (407, None, RegistryRefusedError),
        (408, None, RegistryUnavailableError),
        (429, 42901, RegistryUnavailableError),
        (500, 50001, RegistryUnavailableError),
        (502, -1, RegistryUnavailableError),
        (503, None, RegistryUnavailableError),
        (504, None, RegistryUnavailableError),
        (409, 409, RefusedSchemaError),
        (422, 42201, RefusedSchemaError),
        (302, -1, RegistryError),
        (400, None, RegistryError),
        (405, None, RegistryError),
    ],
)
def test_answers_are_sorted(status: int, code: int | None, kind: type[FrazilError]) -> None:
    problem = answered_problem(status, code, "said", "The registry")
    assert type(problem) is kind
    assert problem.message.startswith("The registry ")


def test_a_page_for_people_is_not_quoted() -> None:
    assert "<html>" not in answered_problem(502, -1, "Unknown Schema Registry Error: b'<html>", "It").message


def chained(inner: Exception) -> Exception:
    try:
        try:
            raise inner
        except Exception as cause:
            raise httpx2.ConnectError("failed") from cause
    except httpx2.ConnectError as problem:
        return problem


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (httpx2.ConnectError("refused"), RegistryUnavailableError),
        (httpx2.ReadTimeout("slow"), RegistryUnavailableError),
        (httpx2.RemoteProtocolError("cut"), RegistryUnavailableError),
        (chained(OSError("reset")), RegistryUnavailableError),
        (chained(ssl.SSLEOFError("hung up")), RegistryUnavailableError),
        (chained(ssl.SSLCertVerificationError("self-signed")), RegistryRefusedError),
        (chained(ssl.SSLError("alert certificate required")), RegistryRefusedError),
        (ValueError("Expecting value: line 1"), RegistryError),
        (KeyError("schema"), RegistryError),
    ],
)
def test_requests_without_an_answer_are_sorted(problem: Exception, kind: type[RegistryError]) -> None:
    assert type(request_problem(problem, "The registry", 3.0)) is kind


def test_all_but_what_is_not_known_passes_through_a_pipeline() -> None:
    # A pipeline takes any error that is no OSError for a record's fault.
    assert issubclass(RegistryError, OSError)
    assert not issubclass(NotInRegistryError, OSError)
    assert str(RegistryUnavailableError("away", fix="wait")) == "away\n  Next: wait"
