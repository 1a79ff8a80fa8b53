"""Connectors in JSON: alone or many, as files and as a worker's REST API gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from jobs.migration.connectors.document_tree import Mapping, Tree
from jobs.migration.connectors.model import Connector, Place, Sources, State, settings_of

_STATES: dict[str, State] = {"RUNNING": "running", "PAUSED": "paused", "STOPPED": "stopped"}
_CLASS = "connector.class"


def read_connectors(tree: Tree, source: str, stem: str, *, path: str = "") -> Sources:
    """Connectors of a JSON document, or of a YAML document of the same form.

    Forms: `{name, config}`; the keys of one connector; a list of either; `{connectors: …}` with a list or a mapping;
    a mapping of names to either, also with `info` and `status` as a worker's REST API gives them.

    Args:
        tree: The document.
        source: Name of the document for places.
        stem: Name of a connector that has none, such as the name of the file.
        path: Path of the tree, if it is a part of the document.
    """
    skipped: list[str] = []
    connectors = tuple(_connectors(tree, source, path, stem, skipped))
    if not connectors and not skipped:
        skipped.append(f"{source}: has no connector: no connector.class in it")
    return Sources(connectors, skipped=tuple(skipped))


def _connectors(tree: Tree, source: str, path: str, name: str, skipped: list[str]) -> Iterator[Connector]:
    if isinstance(tree, list):
        items = [(f"{path}[{at}]", f"{name}-{at + 1}" if len(tree) > 1 else name, item) for at, item in enumerate(tree)]
        yield from _of_several(items, source, skipped)
    elif not isinstance(tree, Mapping):
        return
    elif isinstance(tree.get("connectors"), Mapping | list) and _CLASS not in tree:
        yield from _connectors(tree.get("connectors"), source, _below(path, "connectors"), name, skipped)
    elif isinstance(tree.get("info"), Mapping):
        info, status = tree.mapping("info"), tree.mapping("status")
        yield _connector(info.mapping("config"), source, _below(path, "info.config"), info.text("name") or name, status)
    elif isinstance(tree.get("config"), Mapping):
        config = tree.mapping("config")
        if _CLASS in config:
            yield _connector(config, source, _below(path, "config"), tree.text("name") or name, tree.mapping("status"))
        else:
            skipped.append(f"{source}: {tree.text('name') or name} has a config without connector.class")
    elif _CLASS in tree:
        yield _connector(tree, source, path, tree.text("name") or name, Mapping())
    elif isinstance(tree.get("status"), Mapping):
        skipped.append(f"{source}: {name} has a status and no configuration: expand=info gives both")
    else:
        named = [(_below(path, p.key), p.key, p.value) for p in tree.pairs if isinstance(p.value, Mapping)]
        yield from _of_several(named, source, skipped)


def _of_several(parts: Iterable[tuple[str, str, Tree]], source: str, skipped: list[str]) -> Iterator[Connector]:
    """Connectors of a list or a mapping; if there are some, the parts without a class are named as well.

    Args:
        parts: Path, name and tree of each part.
    """
    found = False
    others: list[str] = []
    for path, name, tree in parts:
        known = len(skipped)
        own = list(_connectors(tree, source, path, name, skipped))
        yield from own
        found = found or bool(own)
        if not own and len(skipped) == known and isinstance(tree, Mapping):
            others.append(tree.text("name") or name)
    if found:
        skipped += [f"{source}: {name} has no connector.class" for name in others]


def _connector(config: Mapping, source: str, path: str, name: str, status: Mapping) -> Connector:
    settings, twice = settings_of(config.texts(source, path))
    tasks = status.get("tasks")
    failed = [
        f"task {task.text('id')} is FAILED"
        for task in (tasks if isinstance(tasks, list) else [])
        if isinstance(task, Mapping) and task.text("state") == "FAILED"
    ]
    state = status.mapping("connector").text("state") or ""
    if state == "FAILED":
        failed.insert(0, "the connector is FAILED")
    own = settings["name"].value.strip() if "name" in settings else ""
    return Connector(
        name.strip() or own,
        settings[_CLASS].value.strip() if _CLASS in settings else "",
        settings,
        Place(source, path, config.pairs[0].line if config.pairs else None),
        state=_STATES.get(state),
        failed=tuple(failed),
        written_twice=twice,
    )


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
