"""Properties files as Java reads them: connectors, workers, and both in one file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.migration.connectors.properties_files import parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=b", [("a", "b", 1)]),
        ("a : b\nc d\ne\n", [("a", "b", 1), ("c", "d", 2), ("e", "", 3)]),
        ("  # no\n! no\n\n a = b ", [("a", "b ", 4)]),
        ("a=1,\\\n   2,\\\n\t3\nb=4", [("a", "1,2,3", 1), ("b", "4", 4)]),
        ("a\\=b\\:c\\ d = e", [("a=b:c d", "e", 1)]),
        ("a=\\ud83d\\ude00 \\ud800", [("a", "😀 \ufffd", 1)]),
        ("a=x\\ty\\nz\\u00e9\\q", [("a", "x\ty\nzéq", 1)]),
        ("a=x\\\\\nb=y", [("a", "x\\", 1), ("b", "y", 2)]),
        ("a=x\\", [("a", "x", 1)]),
        ("a==b", [("a", "=b", 1)]),
        ("a = = b", [("a", "= b", 1)]),
        ("a=1\r\nb=2\rc=3", [("a", "1", 1), ("b", "2", 2), ("c", "3", 3)]),
        ("=x", [("", "x", 1)]),
        ("\ufeffa=b", [("a", "b", 1)]),
        ("\ufeffa=b".encode().decode("latin-1"), [("a", "b", 1)]),
    ],
)
def test_entries_are_those_of_java(text: str, entries: list[tuple[str, str, int]]) -> None:
    assert list(parse_properties(text)) == entries


def escaped(text: str, *, key: bool) -> str:
    """A text as `Properties.store` writes it."""
    found = ""
    for at, letter in enumerate(text):
        if letter in "\\#!=:" or (letter == " " and (key or at == 0)):
            found += f"\\{letter}"
        elif letter in "\t\n\r\f":
            found += {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}[letter]
        elif " " <= letter <= "~":
            found += letter
        else:
            found += f"\\u{ord(letter):04x}"
    return found


texts = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=8)


@given(st.dictionaries(texts.filter(bool), texts, max_size=4))
def test_what_java_writes_is_read_back(entries: dict[str, str]) -> None:
    text = "".join(f"{escaped(key, key=True)}={escaped(value, key=False)}\n" for key, value in entries.items())
    assert {key: value for key, value, _ in parse_properties(text)} == entries


def test_a_connector() -> None:
    sources = read_properties("name=n\nconnector.class=C\ntopics=t\n", "f.properties", "f")
    (connector,) = sources.connectors
    assert (connector.name, connector.connector_class, connector.worker) == ("n", "C", None)
    assert connector.settings["topics"].place.line == 3


def test_a_connector_without_a_name_is_named_by_its_file() -> None:
    (connector,) = read_properties("connector.class=C\n", "f.properties", "f").connectors
    assert connector.name == "f"


def test_a_worker() -> None:
    sources = read_properties("bootstrap.servers=b:9092\ngroup.id=g\nkey.converter=K\n", "w.properties", "w")
    (worker,) = sources.workers
    assert (worker.name, list(worker.settings), sources.connectors) == (
        "w",
        ["bootstrap.servers", "group.id", "key.converter"],
        (),
    )


def test_worker_and_connector_in_one_file_share_its_keys() -> None:
    text = "bootstrap.servers=b:9092\nplugin.path=/p\nvalue.converter=V\nname=n\nconnector.class=C\n"
    sources = read_properties(text, "f.properties", "f")
    (connector,), (worker,) = sources.connectors, sources.workers
    assert connector.worker is worker
    assert list(worker.settings) == ["bootstrap.servers", "plugin.path"]
    assert list(connector.settings) == ["value.converter", "name", "connector.class"]


def test_a_key_that_is_written_twice_counts_once_and_is_named() -> None:
    (connector,) = read_properties("connector.class=C\ntopics=a\ntopics=b\n", "f", "f").connectors
    assert (connector.value("topics"), connector.written_twice) == ("b", ("topics",))


def test_other_properties_are_left_out_by_name() -> None:
    sources = read_properties("log4j.rootLogger=INFO\n", "log.properties", "log")
    assert (sources.connectors, sources.workers) == ((), ())
    assert sources.skipped == ("log.properties: has neither connector.class nor keys of a worker",)
