"""Report of an import as a page in Markdown, for a review."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.config.documents.connect_keys import KeyClass

TITLES: Mapping[KeyClass, str] = {
    KeyClass.SAME: "Same",
    KeyClass.APPROXIMATED: "Approximated",
    KeyClass.NOT_NEEDED: "Not needed",
    KeyClass.NO_EFFECT: "Never had an effect",
    KeyClass.IMPOSSIBLE: "Impossible",
    KeyClass.DECIDE: "To decide",
}
"""Titles of the headings, in the order of the report."""
_OUTCOMES = {"converted": "converted", "decide": "left to decide", "refused": "not converted"}


def report_markdown(document: Mapping[str, Any]) -> str:
    """The page of a report document."""
    return "\n".join(_lines(document)).rstrip() + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    connectors, workers = document["connectors"], document["workers"]
    yield from ("# Import from Kafka Connect", "")
    yield from ("Every key is here once. `import-report.json` has the same facts.", "")
    yield from ("| connector | outcome | streams | " + " | ".join(title.lower() for title in TITLES.values()) + " |",)
    yield "|---|---|---|" + "---:|" * len(TITLES)
    for one in connectors:
        counts = [str(sum(key["heading"] == heading for key in one["keys"])) for heading in TITLES]
        streams = ", ".join(f"`{name}`" for name in one["streams"]) or "–"
        cells = [f"`{_cell(one['name'])}`", _OUTCOMES[one["outcome"]], streams, *counts]
        yield f"| {' | '.join(cells)} |"
    for worker in workers:
        counts = [str(sum(key["heading"] == heading for key in worker["keys"])) for heading in TITLES]
        cells = [f"worker {_cell(worker['name'] or worker['source'])}", "settings", "–", *counts]
        yield f"| {' | '.join(cells)} |"
    yield ""
    for sentence in document["skipped"]:
        yield f"- Left out: {_cell(sentence)}"
    if document["skipped"]:
        yield ""
    for one in connectors:
        yield from _connector(one)
    for worker in workers:
        yield from (f"## Worker {_cell(worker['name'] or worker['source'])}", "", f"Source: {_source(worker)}", "")
        yield from _secrets(worker["secrets"])
        yield from _keys(worker["keys"])


def _connector(one: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"## {_cell(one['name'])}", "")
    yield f"- Class: `{_cell(one['class']) or 'none'}`" + (
        f", generation {one['generation']}" if one["generation"] else ""
    )
    yield f"- Source: {_source(one)}"
    yield f"- Outcome: {_OUTCOMES[one['outcome']]}"
    if one["streams"]:
        yield f"- Streams: {', '.join(f'`streams/{name}.yaml`' for name in one['streams'])}"
    if one["state"]:
        yield f"- State: {one['state']}"
    if takeover := one["takeover"]:
        topic = f", control topic `{takeover['control_topic']}`" if takeover["control_topic"] else ""
        if takeover["group"]:
            yield f"- Position: group `{takeover['group']}`{topic}"
    yield ""
    if one["questions"]:
        yield from ("### Questions", "")
        for question in one["questions"]:
            yield f"- {'**Before the first run:** ' if question['blocks'] else ''}{_cell(question['text'])}"
        yield ""
    if one["notes"]:
        yield from ("### Worth knowing", "", *(f"- {_cell(note)}" for note in one["notes"]), "")
    if one["defaults"]:
        yield from (
            "### Defaults written out",
            "",
            "| key that is missing | default there | written here |",
            "|---|---|---|",
        )
        for default in one["defaults"]:
            yield f"| `{default['key']}` | {_cell(default['there'])} | `{default['at']}: {_cell(default['here'])}` |"
        yield ""
    yield from _secrets(one["secrets"])
    yield from _keys(one["keys"])


def _secrets(secrets: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not secrets:
        return
    yield from ("### Secrets", "", "| key | was | now, at its place |", "|---|---|---|")
    for one in secrets:
        yield f"| `{one['key']}` | {_cell(one['was'])} | `{one['at']}: {one['reference']}` |"
    yield ""


def _keys(keys: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for heading, title in TITLES.items():
        found = [key for key in keys if key["heading"] == heading]
        if not found:
            continue
        yield from (f"### {title}", "", "| key | here | remark |", "|---|---|---|")
        for key in found:
            at = f"`{_cell(key['at'])}`" if key["at"] else "–"
            yield f"| `{_cell(key['key'])}` | {at} | {_cell(key['says'])} |"
        yield ""


def _source(one: Mapping[str, Any]) -> str:
    return f"`{_cell(one['source'])}`" + (f", line {one['line']}" if one["line"] else "")


def _cell(text: str) -> str:
    return " ".join(str(text).replace("|", "\\|").split())
