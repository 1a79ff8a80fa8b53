"""Connectors of a running Connect worker, read over its REST API."""

from __future__ import annotations

from urllib.parse import quote

from jobs.migration.connect_worker import ConnectWorker, WorkerLogin
from jobs.migration.connectors.document_tree import Mapping, Pair, Tree, UnreadableDocument, parse_json
from jobs.migration.connectors.json_documents import read_connectors
from jobs.migration.connectors.model import Sources


def read_worker(address: str, login: WorkerLogin | None = None) -> Sources:
    """Read all connectors of a worker, with their states. Nothing is changed there.

    Args:
        address: URL of the REST API, such as `http://connect:8083`.
        login: User, password and authorities.

    Raises:
        ConnectWorkerError: It does not answer, refuses the login, or is no worker.
        FrazilError: A secret is not set.
    """
    worker = ConnectWorker(address, login)
    base = worker.address
    tree = _get(worker, "/connectors?expand=info&expand=status")
    if isinstance(tree, list):
        # Kafka before 2.3 lists names alone.
        tree = Mapping([Pair(name, _expanded(worker, name)) for name in map(str, tree)])
    if not isinstance(tree, Mapping):
        raise worker.no_worker("the answer is no list of connectors")
    if not tree.pairs:
        return Sources((), skipped=(f"{base}: the worker has no connectors",))
    # Workers list connectors in any order.
    tree.pairs.sort(key=lambda pair: pair.key)
    if not any(isinstance(pair.value, Mapping) for pair in tree.pairs):
        return read_connectors(tree, base, "connector")
    # A connector may be called `config` or `info`: keys of this document are names, whatever they say.
    parts = [read_connectors(pair.value, base, pair.key, path=pair.key) for pair in tree.pairs]
    return Sources(
        tuple(connector for part in parts for connector in part.connectors),
        skipped=tuple(sentence for part in parts for sentence in part.skipped),
    )


def _expanded(worker: ConnectWorker, name: str) -> Mapping:
    path = f"/connectors/{quote(name, safe='')}"
    return Mapping([Pair("info", _get(worker, path)), Pair("status", _get(worker, f"{path}/status"))])


def _get(worker: ConnectWorker, path: str) -> Tree:
    try:
        return parse_json(worker.get(path).decode("utf-8", errors="replace"))
    except UnreadableDocument as problem:
        raise worker.no_worker(f"the answer {problem}") from None
