"""Connectors of a running Connect worker, asked over its REST API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

import requests

from jobs.base.errors import FrazilError
from jobs.config.documents.secrets import Secret, reveal
from jobs.migration.connectors.document_tree import Mapping, Pair, Tree, UnreadableDocument, parse_json
from jobs.migration.connectors.json_documents import read_connectors
from jobs.migration.connectors.model import Sources

_LONGEST = 64 * 1024 * 1024


class ConnectUnavailable(FrazilError):
    """A worker of Kafka Connect does not answer as its REST API does.

    Safe: Nothing was changed, here or there.
    Next: `curl URL/connectors` shows what answers
    """


@dataclass(frozen=True, slots=True)
class Login:
    """How the worker's REST API is asked.

    Attributes:
        user: User of basic authentication; None without a login.
        password: Password, as a secret reference; with no user a bearer token.
        ca: PEM file of the authorities that sign the worker's certificate; None: those that the machine trusts.
        timeout: Seconds that an answer may take.
    """

    user: str | None = None
    password: Secret | None = None
    ca: Path | None = None
    timeout: float = 20.0


def is_address(source: str) -> bool:
    """Whether a source is the address of a worker."""
    return re.match(r"https?://", source, re.IGNORECASE) is not None


def read_worker(address: str, login: Login | None = None) -> Sources:
    """All connectors of a worker, with their states. Nothing is changed there.

    Args:
        address: URL of the REST API, such as `http://connect:8083`.
        login: User, password and authorities.

    Raises:
        ConnectUnavailable: It cannot be reached, refuses the login, or is no worker.
        FrazilError: The address has a password in it, or a secret is not set.
    """
    parts = urlsplit(address)
    if "@" in parts.netloc:
        raise FrazilError(
            "The address of the worker has a user or a password in it, which a list of processes shows.",
            fix=f"frazil import {parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path} "
            "--user NAME --password '${env:NAME}'",
        )
    base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/connectors')}"
    login = login or Login()
    timeout = login.timeout
    with requests.Session() as session:
        session.trust_env = False
        if login.ca is not None:
            session.verify = str(login.ca)
        if login.user is not None:
            session.auth = (login.user, reveal(login.password or ""))
        elif login.password is not None:
            session.headers["Authorization"] = f"Bearer {login.password.reveal()}"
        tree = _get(session, f"{base}/connectors?expand=info&expand=status", base, timeout)
        if isinstance(tree, list):
            # Kafka before 2.3 lists names alone.
            tree = Mapping([Pair(name, _expanded(session, base, name, timeout)) for name in map(str, tree)])
    if not isinstance(tree, Mapping):
        raise ConnectUnavailable(
            f"{base} answers, but not as a worker of Kafka Connect.", fix=f"curl {base}/connectors"
        )
    if not tree.pairs:
        return Sources((), skipped=(f"{base}: the worker has no connectors",))
    # Workers list connectors in any order.
    tree.pairs.sort(key=lambda pair: pair.key)
    return read_connectors(tree, base, "connector")


def _expanded(session: requests.Session, base: str, name: str, timeout: float) -> Mapping:
    path = f"{base}/connectors/{quote(name, safe='')}"
    info, status = _get(session, path, base, timeout), _get(session, f"{path}/status", base, timeout)
    return Mapping([Pair("info", info), Pair("status", status)])


def _get(session: requests.Session, url: str, base: str, timeout: float) -> Tree:
    try:
        # A redirect would carry the login to another host.
        response = session.get(url, timeout=timeout, allow_redirects=False, stream=True)
        with response:
            if response.status_code in (401, 403):
                said = "refuses the login" if session.auth or "Authorization" in session.headers else "wants a login"
                raise ConnectUnavailable(
                    f"{base} {said} (HTTP {response.status_code}).",
                    fix=f"frazil import {base} --user NAME --password '${{env:NAME}}'",
                )
            if response.status_code != requests.codes.ok:
                raise ConnectUnavailable(f"{base} answers HTTP {response.status_code}.", fix=f"curl {base}/connectors")
            content = response.raw.read(_LONGEST + 1, decode_content=True)
    except requests.exceptions.SSLError:
        raise ConnectUnavailable(
            f"{base} has a certificate that this machine does not trust.", fix=f"frazil import {base} --ca FILE.pem"
        ) from None
    except (requests.RequestException, OSError) as problem:
        raise ConnectUnavailable(
            f"{base} cannot be reached: {type(problem).__name__}.", fix=f"curl {base}/connectors"
        ) from None
    if len(content) > _LONGEST:
        raise ConnectUnavailable(f"{base} answers more than {_LONGEST // 1024**2} MB.", fix=f"curl {base}/connectors")
    try:
        return parse_json(content.decode("utf-8", errors="replace"))
    except UnreadableDocument as problem:
        raise ConnectUnavailable(
            f"{base} answers, but not as a worker of Kafka Connect: the answer {problem}.",
            fix=f"curl {base}/connectors",
        ) from None
