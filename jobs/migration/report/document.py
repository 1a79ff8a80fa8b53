"""Report of an import as a JSON document, in a stable order and without a secret's value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from jobs.config.documents.connect_keys import KeyClass
from jobs.migration.conversion.account import Answer
from jobs.migration.conversion.conversion import Conversion, ConvertedConnector, ConvertedWorker
from jobs.migration.conversion.draft import SecretReference

VERSION = 1
_SETTING_IN_KEY = re.compile(r"=|:\s|\s")
Document = dict[str, Any]


def report_document(conversion: Conversion) -> Document:
    """The report.

    Args:
        conversion: What the import made.

    Returns:
        `connectors` (by name; each with `keys`, `defaults`, `secrets`, `questions`, `notes` and `takeover`), `workers`,
        `settings`, `skipped`, and `counts` of keys by heading. `frazil takeover` reads `connectors[].takeover`.
    """
    connectors = [_connector(one, conversion.secrets) for one in conversion.connectors]
    workers = [_worker(one, conversion.secrets) for one in conversion.workers]
    for part in (connectors, workers):
        part.sort(key=_order)
    document: Document = {
        "version": VERSION,
        "connectors": connectors,
        "workers": workers,
        "settings": conversion.settings,
        "skipped": list(conversion.skipped),
    }
    return document | {"counts": counted(document)}


def merged_report(former: Mapping[str, Any] | None, document: Document) -> Document:
    """A report that also has the connectors of former imports into the same folder.

    Args:
        former: Report of the former imports; None for the first.
        document: Report of this import. Its connectors and workers count before those of the same name.
    """
    if former is None or former.get("version") != VERSION:
        return document
    merged = dict(document)
    for part in ("connectors", "workers"):
        names = {(one["name"], one["source"]) if part == "workers" else one["name"] for one in document[part]}
        older = [
            one
            for one in former.get(part, ())
            if ((one["name"], one["source"]) if part == "workers" else one["name"]) not in names
        ]
        merged[part] = sorted([*document[part], *older], key=_order)
    merged["settings"] = _laid_over(former.get("settings", {}), document["settings"])
    return merged | {"counts": counted(merged)}


def _order(one: Mapping[str, Any]) -> tuple[str, str]:
    return one["name"] or "", one["source"]


def _laid_over(former: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of all imports; those of this one count before former ones."""
    found = dict(former)
    for key, value in settings.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _laid_over(found[key], value) if both else value
    return found


def counted(document: Mapping[str, Any]) -> dict[str, int]:
    """Keys by heading, over all connectors and workers."""
    keys = [key for part in ("connectors", "workers") for one in document[part] for key in one["keys"]]
    return {str(heading): sum(key["heading"] == heading for key in keys) for heading in KeyClass}


def _connector(converted: ConvertedConnector, secrets: Iterable[SecretReference]) -> Document:
    connector, takeover = converted.connector, converted.takeover
    return {
        "name": connector.name,
        "class": connector.connector_class,
        "family": converted.family,
        "generation": converted.generation or None,
        "source": connector.place.source,
        "line": connector.place.line,
        "state": connector.state,
        "outcome": converted.outcome,
        "streams": [stream["stream"] for stream in converted.streams],
        "takeover": None
        if takeover is None
        else {
            "generation": converted.generation or None,
            "group": takeover.group,
            "control_topic": takeover.control_topic,
            "snapshot_key": takeover.snapshot_key,
            "read_uncommitted": takeover.read_uncommitted,
            "member_group": takeover.member_group,
            "topics": list(takeover.topics),
            "dynamic": takeover.dynamic,
            "branch": takeover.branch,
            "branches": dict(takeover.branches),
        },
        "questions": [{"text": question.text, "blocks": question.blocks} for question in converted.questions],
        "notes": list(converted.notes),
        "defaults": [
            {"key": one.key, "there": one.there, "at": one.at, "here": one.here} for one in converted.defaults
        ],
        "secrets": _secrets(secrets, connector.place.source, {answer.key: answer for answer in converted.answers}),
        "keys": [_key(answer) for answer in converted.answers],
    }


def _worker(converted: ConvertedWorker, secrets: Iterable[SecretReference]) -> Document:
    worker = converted.worker
    return {
        "name": worker.name,
        "source": worker.place.source,
        "line": worker.place.line,
        "secrets": _secrets(secrets, worker.place.source, {answer.key: answer for answer in converted.answers}),
        "keys": [_key(answer) for answer in converted.answers],
    }


def _key(answer: Answer) -> Document:
    return {
        "key": _shown_key(answer.key),
        "heading": str(answer.heading),
        "says": answer.says,
        "at": answer.at,
        "line": answer.place.line,
    }


def _shown_key(key: str) -> str:
    """A key; a comment or a broken line that is taken for one goes up to its value, which may be a secret."""
    return re.sub(r"([=:]|\bis)\s*\S.*", r"\1 …", key, flags=re.DOTALL) if _SETTING_IN_KEY.search(key) else key


def _secrets(secrets: Iterable[SecretReference], source: str, answers: Mapping[str, Answer]) -> list[Document]:
    """Secrets of one document: those whose place is that of one of its keys."""
    return [
        {"key": one.key, "line": one.place.line, "at": one.at, "reference": one.reference, "was": one.was}
        for one in secrets
        if one.place.source == source and one.key in answers and answers[one.key].place == one.place
    ]
