"""Java properties files: of a connector, of a worker, or of both in one file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs.config.documents.connect_keys import find_key
from jobs.migration.connectors.document_tree import UnreadableDocument, well_formed
from jobs.migration.connectors.model import Connector, Place, Sources, Worker, settings_of

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.)|$)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"
# UTF-8's byte order mark, as Latin-1 has it.
_MARK_IN_LATIN_1 = "\ufeff".encode().decode("latin-1")
_WORKER = ("bootstrap.servers", "group.id")


def parse_properties(text: str) -> Iterator[tuple[str, str, int]]:
    """Key, value and line of each entry, as `java.util.Properties` reads them.

    Raises:
        UnreadableDocument: A private key is cut at the end of a line, so that its other lines would be keys.
    """
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff").removeprefix(_MARK_IN_LATIN_1))
    at = 0
    while at < len(lines):
        first, line = at + 1, lines[at].lstrip(_BLANKS)
        at += 1
        if not line or line[0] in "#!":
            continue
        while _continues(line):
            line = line[:-1]
            if at >= len(lines):
                break
            line += lines[at].lstrip(_BLANKS)
            at += 1
        if line.count("-----BEGIN") > line.count("-----END"):
            raise UnreadableDocument(
                f"has a certificate or key in PEM without a backslash at the end of each line: line {first}"
            )
        key, value = _split(line)
        yield _unescaped(key), _unescaped(value), first


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Key and value, both with their escapes: the key ends at the first `=`, `:` or blank without a backslash."""
    match = re.match(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert match is not None, "every part of the pattern may be empty"
    return match[1], match[2]


def _unescaped(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _LETTERS.get(match[2] or "", match[2] or "")

    # Java's characters are UTF-16: two escapes may be one character.
    return well_formed(_ESCAPE.sub(character, text))


def read_properties(text: str, source: str, stem: str) -> Sources:
    """Connector or worker of a properties file, or both.

    Args:
        text: The file, decoded as Latin-1 as Java does.
        source: Name of the file for places.
        stem: Name of the file without its ending, for a connector without `name`.
    """
    pairs = [(key, value, Place(source, key, line)) for key, value, line in parse_properties(text)]
    place = Place(source)
    keys = {key for key, _, _ in pairs}
    if "connector.class" not in keys:
        if not keys & {*_WORKER, "key.converter", "value.converter", "offset.storage.file.filename"}:
            return Sources((), skipped=(f"{source}: has neither connector.class nor keys of a worker",))
        settings, twice = settings_of(pairs)
        return Sources((), (Worker(stem, settings, place, twice),))
    of_worker = [pair for pair in pairs if _is_workers(pair[0])]
    own, twice = settings_of(pair for pair in pairs if not _is_workers(pair[0]))
    worker = None
    if of_worker:
        settings, worker_twice = settings_of(of_worker)
        worker = Worker(None, settings, place, worker_twice)
    name = own["name"].value.strip() if "name" in own else stem
    connector = Connector(
        name, own["connector.class"].value.strip(), own, place, worker=worker, written_twice=twice, state=None
    )
    return Sources((connector,), (worker,) if worker else ())


def _is_workers(key: str) -> bool:
    entry = find_key(key)
    return key in _WORKER or (entry is not None and entry.of == "worker")
