"""Page of Kafka Connect's keys: docs/reference/connect-keys.md, from the table that `frazil import` uses."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.config.documents.connect_keys import ConnectKey, connect_keys

_HEAD = """\
# Keys of Kafka Connect

Your key on the left, and what it is here. `frazil import` uses the same table, and `frazil validate` answers with it
where a key is carried over by hand.

In a key, `*` is the rest of a name, a word in capitals is any name, `{…}` may be missing, and `(a/b)` is either.

| class | meaning |
|---|---|
| same | the key has a counterpart that does the same |
| approximated | the counterpart differs; the report of an import says how |
| not needed | nothing takes its place, and nothing is lost |
| no effect | no release of the connector that is in use reads it |
| impossible | frazil cannot do it |

A key with *only Tabular's* is read by releases of that generation alone; Apache's ignore it in silence.
`python -m tests.reference` writes this page from `jobs/config/documents/connect_keys.json`.
"""
_OWNERS = {
    "strimzi": "Strimzi's resources",
    "worker": "Workers",
    "files": "S3 and HDFS sinks",
    "aiven-files": "Aiven's S3 sink",
    "jdbc": "JDBC sinks",
    "debezium": "Debezium's sources",
    "getindata": "GetInData's Iceberg sink",
}
_GENERATIONS = {"tabular": "only Tabular's", "first": "only the first releases"}
_OWN = "Any connector"
# Brackets would be read as links.
_SHOWN = str.maketrans("|[]", "/{}")


def connect_page() -> str:
    """The page as Markdown."""
    sections: dict[str, list[ConnectKey]] = {}
    for entry in connect_keys():
        sections.setdefault(_section(entry), []).append(entry)
    return "\n".join([_HEAD, *(line for title, entries in sections.items() for line in _lines(title, entries))])


def _section(entry: ConnectKey) -> str:
    if entry.of != "connector":
        return _OWNERS[entry.of]
    key = entry.key
    if key.startswith("iceberg"):
        return "The Iceberg sink"
    if "registry" in key:
        return "Schema registry"
    if "converter" in key:
        return "Converters"
    if key.startswith(("transforms", "predicates")):
        return "Transforms"
    if key.startswith(("errors", "[errors", "autoRestart", "(autoRestart")):
        return "Errors and restarts"
    if "override" in key or "bootstrap" in key or key.startswith("consumer"):
        return "Clients of Kafka"
    return _OWN


def _lines(title: str, entries: list[ConnectKey]) -> Iterator[str]:
    yield from (f"## {title}", "", "| key | class | here |", "|---|---|---|")
    for entry in entries:
        cells = [f"`{entry.key.translate(_SHOWN)}`", _class(entry), _here(entry)]
        escaped = [cell.replace("|", "\\|") for cell in cells]
        yield f"| {' | '.join(escaped)} |"
    yield ""


def _class(entry: ConnectKey) -> str:
    only = [_GENERATIONS[one] for one in entry.read_by]
    return " · ".join([entry.key_class.replace("_", " "), *only])


def _here(entry: ConnectKey) -> str:
    """The rest of a sentence, as a phrase."""
    says = entry.says.removeprefix("is not needed: ")
    return says.removeprefix("is ") if entry.says == says else says
