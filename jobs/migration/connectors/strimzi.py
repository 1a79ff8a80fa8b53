"""Strimzi's resources: `KafkaConnect` as a worker and `KafkaConnector` as a connector."""

from __future__ import annotations

import json
from collections.abc import Iterator

from jobs.migration.connectors.document_tree import Mapping, Tree, as_text
from jobs.migration.connectors.model import Connector, Place, Sources, State, Worker, settings_of

_CLUSTER = "strimzi.io/cluster"
_STATES: dict[str, State] = {"running": "running", "paused": "paused", "stopped": "stopped"}
# Parts of a spec whose keys are answered one by one.
_OPENED = ("authentication", "tls", "autoRestart")
# Keys of a resource that are a connector's keys under another name.
_NAMES = {"class": "connector.class", "tasksMax": "tasks.max", "version": "connector.plugin.version"}


def is_resource(tree: Tree) -> bool:
    """Whether a document is a resource of Kubernetes, or a list of them."""
    return isinstance(tree, Mapping) and "kind" in tree and ("apiVersion" in tree or "metadata" in tree)


def read_resources(tree: Tree, source: str) -> Sources:
    """Workers and connectors of a resource, or of a list as `kubectl get -o json` gives it.

    Args:
        tree: The document.
        source: Name of the document for places.
    """
    if not isinstance(tree, Mapping):
        return Sources(())
    kind, items = tree.text("kind") or "", tree.get("items")
    if isinstance(items, list):
        parts = [read_resources(item, source) for item in items if is_resource(item)]
        return Sources(
            tuple(connector for part in parts for connector in part.connectors),
            tuple(worker for part in parts for worker in part.workers),
            tuple(sentence for part in parts for sentence in part.skipped),
        )
    name = tree.mapping("metadata").text("name") or ""
    if kind == "KafkaConnect":
        return Sources((), (_worker(tree, source),))
    if kind == "KafkaConnector":
        return Sources((_connector(tree, source),))
    return Sources((), skipped=(f"{source}: {kind} {name} is neither KafkaConnect nor KafkaConnector",))


def _worker(tree: Mapping, source: str) -> Worker:
    spec, metadata = tree.mapping("spec"), tree.mapping("metadata")
    pairs = [*_metadata(tree, source), *_spec(spec, source), *spec.mapping("config").texts(source, "spec.config")]
    settings, twice = settings_of(pairs)
    return Worker(metadata.text("name"), settings, _place(tree, source), twice, metadata.text("namespace"))


def _connector(tree: Mapping, source: str) -> Connector:
    spec, metadata = tree.mapping("spec"), tree.mapping("metadata")
    # Strimzi ignores class and number of tasks in `config`: the last one of two counts.
    pairs = [*_metadata(tree, source), *spec.mapping("config").texts(source, "spec.config"), *_spec(spec, source)]
    settings, twice = settings_of(
        (_NAMES.get(key.removeprefix("spec."), key), value, place) for key, value, place in pairs
    )
    paused = (spec.text("pause") or "").lower() == "true"
    return Connector(
        metadata.text("name") or "",
        settings["connector.class"].value.strip() if "connector.class" in settings else "",
        settings,
        _place(tree, source),
        worker_name=metadata.mapping("labels").text(_CLUSTER),
        state=_STATES.get((spec.text("state") or "").lower()) or ("paused" if paused else None),
        written_twice=twice,
        namespace=metadata.text("namespace"),
    )


def _metadata(tree: Mapping, source: str) -> Iterator[tuple[str, str, Place]]:
    for pair in tree.mapping("metadata").pairs:
        if pair.key in ("labels", "annotations") and isinstance(pair.value, Mapping):
            for key, value, place in pair.value.texts(source, f"metadata.{pair.key}"):
                yield f"metadata.{pair.key}.{key}", value, place
        elif pair.key in ("name", "namespace"):
            yield f"metadata.{pair.key}", as_text(pair.value), Place(source, f"metadata.{pair.key}", pair.line)


def _spec(spec: Mapping, source: str) -> Iterator[tuple[str, str, Place]]:
    for pair in spec.pairs:
        if pair.key == "config":
            continue
        if pair.key in _OPENED and isinstance(pair.value, Mapping):
            own = pair.value.mapping("config")
            for key, value, place in pair.value.texts(
                source, f"spec.{pair.key}", apart=("config",) if own.pairs else ()
            ):
                yield f"spec.{pair.key}.{key}", value, place
            for key, value, place in own.texts(source, f"spec.{pair.key}.config"):
                yield f"spec.{pair.key}.config.{key}", value, place
        else:
            yield f"spec.{pair.key}", as_text(pair.value), Place(source, f"spec.{pair.key}", pair.line)


def _place(tree: Mapping, source: str) -> Place:
    return Place(source, "", tree.pairs[0].line if tree.pairs else None)


def secret_of(value: str) -> list[tuple[str, str]]:
    """Secrets that a key of a resource names, as `secret lab-connect, key password`, each with the key in it.

    Args:
        value: Value of a key such as `spec.authentication.passwordSecret` or `spec.tls.trustedCertificates`.
    """
    try:
        found = json.loads(value)
    except ValueError:
        try:
            found = json.loads(f"[{value}]")
        except ValueError:
            return []
    entries = found if isinstance(found, list) else [found]
    named: list[tuple[str, str]] = []
    for entry in entries:
        if isinstance(entry, dict) and isinstance(name := entry.get("secretName"), str):
            keys = [entry[key] for key in ("password", "certificate", "pattern", "key", "accessToken") if key in entry]
            named.append((f"secret {name}" + (f", key {keys[0]}" if keys else ""), str(keys[0]) if keys else ""))
    return named
