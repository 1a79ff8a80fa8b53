"""Configurations that nobody would write: keys lack, are empty, templates or nonsense, and each still has an answer."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.documents.connect_keys import connect_keys
from jobs.migration.connectors.model import Connector, Setting, Sources
from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import convert
from jobs.migration.files.plan import plan_import
from jobs.migration.report.document import report_document
from jobs.migration.report.markdown import report_markdown

CORPUS = Path(__file__).with_name("corpus")
SECRET = "plain-mutated"
VALUES = (
    "",
    " ",
    "true",
    "FALSE",
    "-1",
    "0",
    "7",
    "a,b",
    "a.b,c.d",
    ",",
    "(",
    "{{ x }}",
    "${X}",
    "${file:/p:k}",
    "😀",
    "é.b",
    "9223372036854775807",
    "²",
    "https://[::1",
    "null",
)
ODD_KEYS = ("", " ", "iceberg.catalog.", "transforms..type", "a key", "é.ü", "iceberg.table..route-regex", "|`x`")


@cache
def known_keys() -> tuple[str, ...]:
    """Every key of the table in full, and some that nobody reads."""
    own = {key.replace("TABLE", "shop.orders") for entry in connect_keys() for key in entry.spelled()}
    return (*sorted(own), *ODD_KEYS)


@cache
def corpus_connectors() -> tuple[Sources, ...]:
    paths = sorted(path for path in CORPUS.iterdir() if not path.name.endswith(".expect.yaml"))
    return tuple(read_sources([str(path)]) for path in paths)


@st.composite
def mutated(draw: st.DrawFn) -> Sources:
    sources = draw(st.sampled_from(corpus_connectors()))
    return replace(sources, connectors=tuple(draw(mutated_connector(one)) for one in sources.connectors))


@st.composite
def mutated_connector(draw: st.DrawFn, connector: Connector) -> Connector:
    keys = list(connector.settings)
    lost = draw(st.sets(st.sampled_from(keys), max_size=3))
    changed = draw(st.dictionaries(st.sampled_from(keys), st.sampled_from(VALUES), max_size=4))
    secret = {key for key in keys if key.endswith(("password", "secret-access-key", "token", "credential"))}
    written = {
        key: Setting(key, SECRET if key in secret else changed.get(key, setting.value), setting.place)
        for key, setting in connector.settings.items()
        if key not in lost - {"connector.class"}
    }
    for key, value in draw(st.dictionaries(st.sampled_from(known_keys()), st.sampled_from(VALUES), max_size=6)).items():
        written.setdefault(key, Setting(key, value, connector.place))
    return replace(connector, settings=written)


@settings(max_examples=400, deadline=None)
@given(mutated())
def test_every_key_has_one_answer_and_no_secret_is_shown(sources: Sources) -> None:
    conversion = convert(sources)

    for one in conversion.connectors:
        assert sorted(answer.key for answer in one.answers) == sorted(one.connector.settings)
        assert all(answer.says.strip() or answer.at for answer in one.answers)
    document = report_document(conversion)
    streams = json.dumps([stream for _, stream in conversion.streams])
    outputs = json.dumps(document) + report_markdown(document) + streams
    assert SECRET not in outputs
    assert json.dumps(report_document(convert(sources))) == json.dumps(document)


@settings(max_examples=150, deadline=None)
@given(mutated())
def test_no_value_stops_the_others_from_being_imported(sources: Sources) -> None:
    conversion = convert(sources)

    plan = plan_import(conversion, Path("/nonexistent/deployment"))

    assert len(plan.files) == len(conversion.streams) + bool(conversion.streams)
    assert all(SECRET not in file.text for file in plan.files)
