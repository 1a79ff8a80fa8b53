"""Decoders of one's own: the example package, functions that misbehave, and what is in the configuration."""

from __future__ import annotations

import importlib
import pickle
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.config.settings.loading import load_stream
from jobs.config.stream.models import StreamSpec
from jobs.records.formats.interface.decoder import Decoded
from jobs.records.formats.interface.problems import without_value
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.own.format import loaded, version_of
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import RoutedStream

EXAMPLE = Path(__file__).resolve().parents[5] / "examples/own_decoders"
SCHEMA = "id long not null, name string, at date"
WIDTHS = [4, 6, 10]
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package on the path as an installer does: its code, and what it says of itself."""
    site = tmp_path / "site"
    site.mkdir()
    names: list[str] = []

    def put(name: str, code: str | None, version: str, **declared: str) -> None:
        if code is not None:
            (site / f"{name}.py").write_text(code)
        for old in site.glob(f"{name}-*.dist-info"):
            shutil.rmtree(old)
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = "".join(f"{key} = {value}\n" for key, value in declared.items())
        (info / "entry_points.txt").write_text(f"[frazil.decoders]\n{lines}")
        names.append(name)
        importlib.invalidate_caches()
        _forget()

    monkeypatch.syspath_prepend(str(site))
    yield put
    for name in (*names, "own_decoders.fixed_width"):
        sys.modules.pop(name, None)
    _forget()


def _forget() -> None:
    loaded.cache_clear()
    version_of.cache_clear()


@pytest.fixture
def example(install: Install, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The block `decode.value` for the decoder of the example package."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(str(EXAMPLE))
    install("own_decoders", None, project["version"], **project["entry-points"]["frazil.decoders"])
    return {"format": "own", "decoder": "fixed_width", "options": {"widths": WIDTHS}}


def stream(value: Any, schema: str = SCHEMA, **decode: Any) -> StreamSpec:
    return StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": value, "schema": schema, **decode},
            "table": {"name": SINK},
        }
    )


def decoded(spec: StreamSpec, values: list[bytes | None]) -> Decoded:
    decoder = pickle.loads(pickle.dumps(spec.resolved.decoder))
    made = FORMATS["own"].block(decoder).decode(pa.array(values, pa.binary()))
    again = FORMATS["own"].reference(decoder).decode(pa.array(values, pa.binary()))
    assert made.rows.equals(again.rows) and made.failures == again.failures
    fates = [*made.positions.tolist(), *(each.row for each in made.failures), *made.tombstones.tolist()]
    assert sorted(fates) == list(range(len(values)))
    assert [each.row for each in made.failures] == sorted(each.row for each in made.failures)
    return made


def line(number: int, name: str = "", at: str = "2026-01-31") -> bytes:
    return f"{number:>4}{name:<6}{at:<10}".encode()


def test_the_example_cuts_lines_into_columns_and_refuses_others(example: dict[str, Any]) -> None:
    values = [
        line(1, "Oslo"),
        b"short",
        None,
        line(22),
        line(3, "Kyoto", "2026-02-30"),
        line(4, "é"),
        b"    x" + b" " * 15,
    ]
    made = decoded(stream(example), values)
    rows = [(each["id"], each["name"], str(each["at"])) for each in made.rows.to_pylist()]
    assert rows == [(1, "Oslo", "2026-01-31"), (22, None, "2026-01-31"), (4, "é", "2026-01-31")]
    assert made.positions.tolist() == [0, 3, 5] and made.tombstones.tolist() == [2]
    told = {each.row: (each.error_class, each.field) for each in made.failures}
    assert told == {1: ("own_code_refused", None), 4: ("own_code_failed", None), 6: ("null_in_required", "$.id")}
    assert made.failures[0].message == "the decoder `fixed_width` refuses the value: it has another length"
    assert made.failures[1].message.startswith("the decoder `fixed_width` raised ArrowInvalid: ")
    assert without_value(made.failures[1].message) == "the decoder `fixed_width` raised ArrowInvalid"
    assert decoded(stream(example), []).rows.num_rows == 0
    assert decoded(stream(example), [None]).rows.schema.names == ["id", "name", "at"]


def test_a_stream_lands_what_it_reads_and_sets_the_rest_aside(example: dict[str, Any], tmp_path: Path) -> None:
    decode = {"value": example, "schema": SCHEMA}
    one = RoutedStream(tmp_path / "home", decode=decode, transform=[{"where": "id <> 3"}])
    done = one.land(line(1, "a"), b"\xff", line(3), line(4), b"short")
    counts = done.counts
    assert (counts.read, counts.landed, counts.dead, counts.filtered) == (5, 2, 2, 1)
    assert [row["id"] for row in one.rows] == [1, 4]
    assert one.letters == {1: "own_code_failed", 4: "own_code_refused"}


def test_a_stream_that_masks_keeps_nothing_of_values_that_only_the_decoder_can_read(
    example: dict[str, Any], tmp_path: Path
) -> None:
    errors = {"dead_letters": {"mask": {"columns": ["name"]}}, "stop_above": "off"}
    one = RoutedStream(tmp_path / "home", decode={"value": example, "schema": SCHEMA}, errors=errors)
    one.land(line(1, "secret", "2026-02-30"))
    (letter,) = one.catalog.load_table(f"{SINK}_dead").scan().to_arrow().to_pylist()
    assert letter["value"] is None and letter["masked"] == "value"
    assert "secret" not in str(letter)


def test_version_and_options_are_part_of_the_configuration(example: dict[str, Any], install: Install) -> None:
    known = stream(example).config_hash
    assert stream(example).config_hash == known
    assert stream({**example, "options": {"widths": [6, 4, 10]}}).config_hash != known
    install("own_decoders", None, "2.1.0", fixed_width="own_decoders.fixed_width:decode")
    assert stream(example).config_hash != known
    key = {"format": "own", "decoder": "fixed_width", "options": {"widths": [3]}, "schema": "k string"}
    with_key = stream("json", "id string", key=key).config_hash
    install("own_decoders", None, "2.2.0", fixed_width="own_decoders.fixed_width:decode")
    assert stream("json", "id string", key=key).config_hash != with_key
    again = StreamSpec.model_validate(stream(example).model_dump(mode="json", exclude_defaults=True, by_alias=True))
    assert again.config_hash == stream(example).config_hash


MISBEHAVING = """
import pyarrow as pa

def rows(values, schema):
    return pa.RecordBatch.from_arrays([pa.array([each.decode() for each in values.to_pylist()], pa.string())], ["id"])

def fewer(values, schema):
    return rows(values, schema).slice(0, max(0, len(values) - 1))

def raises(values, schema):
    if b"bad" in values.to_pylist():
        raise KeyError("bad")
    return rows(values, schema)

def other(values, schema):
    return rows(values, schema).rename_columns(["x"])

def typed(values, schema):
    made = rows(values, schema)
    return made if not len(values) else made.cast(pa.schema([("id", pa.binary())]))

def beyond(values, schema):
    return rows(values, schema), ({9: "there is none"} if len(values) else {})

def nothing(values, schema):
    return None if len(values) else rows(values, schema)

def broken(values, schema):
    raise ValueError("at once")

def offline(values, schema):
    if len(values):
        raise OSError("the network")
    return rows(values, schema)

text = "no function"
"""
FUNCTIONS = ("rows", "fewer", "raises", "other", "typed", "beyond", "nothing", "broken", "offline", "text")


@pytest.fixture
def misbehaving(install: Install) -> None:
    declared = {name: f"misbehaving:{name}" for name in FUNCTIONS}
    install("misbehaving", MISBEHAVING, "0.1", **declared, gone="misbehaving:gone", away="no_such_module:decode")


@pytest.mark.usefixtures("misbehaving")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fewer", "gives another number of rows: 0 of 1"),
        ("typed", "gives other columns than decode.schema declares, or of other types"),
        ("beyond", "refuses a value that it was not given"),
        ("nothing", "gives no pyarrow.RecordBatch"),
    ],
)
def test_what_it_gives_wrongly_is_a_dead_letter_that_names_it(name: str, said: str) -> None:
    made = decoded(stream({"format": "own", "decoder": name}, "id string"), [b"a", None, b"b"])
    assert {each.error_class for each in made.failures} == {"own_code_failed"}
    assert all(said in each.message and f"`{name}`" in each.message for each in made.failures)


@pytest.mark.usefixtures("misbehaving")
def test_a_value_that_it_raises_for_fails_alone() -> None:
    values: list[bytes | None] = [b"bad" if number in (3, 90) else str(number).encode() for number in range(100)]
    made = decoded(stream({"format": "own", "decoder": "raises"}, "id string"), values)
    assert [each.row for each in made.failures] == [3, 90] and made.rows.num_rows == 98
    assert made.rows.column("id").to_pylist()[:5] == ["0", "1", "2", "4", "5"]
    with pytest.raises(OSError, match="the network"):
        decoded(stream({"format": "own", "decoder": "offline"}, "id string"), [b"a"])


@pytest.mark.usefixtures("misbehaving")
@pytest.mark.parametrize(
    ("decode", "said"),
    [
        ({"value": {"format": "own", "decoder": "nobody"}}, "decode.value.decoder: no package that is installed here"),
        ({"value": {"format": "own", "decoder": "gone"}}, "decode.value.decoder: the decoder `gone`"),
        ({"value": {"format": "own", "decoder": "away"}}, "cannot be imported here (ModuleNotFoundError"),
        ({"value": {"format": "own", "decoder": "text"}}, "is no function"),
        ({"value": {"format": "own", "decoder": "other"}}, "the decoder `other` gives other columns"),
        ({"value": {"format": "own", "decoder": "broken"}}, "raises ValueError for a block without values: at once"),
        ({"value": {"format": "own", "decoder": "rows", "options": {"x": 1}}}, "raises TypeError for a block"),
        (
            {"value": {"format": "own", "decoder": "rows"}, "schema": "id long"},
            "the decoder `rows` gives other columns",
        ),
        (
            {"value": {"format": "own", "decoder": "rows"}, "schema": "infer"},
            "decode.schema: of values of the format own",
        ),
        (
            {"value": {"format": "own", "decoder": "rows"}, "unknown_fields": "fail"},
            "unknown_fields: is up to the decoder",
        ),
        (
            {"value": {"format": "own", "decoder": "rows"}, "unknown_fields": "keep"},
            "unknown_fields: is up to the decoder",
        ),
        ({"value": {"format": "own", "decoder": "rows"}, "case_insensitive": True}, "case_insensitive: is up to the"),
        ({"value": {"format": "own"}}, "decode.value.decoder"),
        ({"value": "own"}, "decode.value"),
        (
            {"value": "json", "key": {"format": "own", "decoder": "other", "schema": "k string"}},
            "decode.key.schema: the decoder `other` gives other columns",
        ),
    ],
)
def test_what_cannot_be_is_told_with_its_place(tmp_path: Path, decode: dict[str, Any], said: str) -> None:
    file = tmp_path / "streams" / "payments.yaml"
    file.parent.mkdir()
    document = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"schema": "id string", **decode},
        "table": {"name": SINK},
    }
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(FrazilError) as error:
        load_stream(file)
    assert said in str(error.value), str(error.value)


def test_a_name_of_two_packages_is_refused(install: Install) -> None:
    install("one_package", "def decode(values, schema): ...", "1", both="one_package:decode")
    install("other_package", "def decode(values, schema): ...", "1", both="other_package:decode")
    with pytest.raises(
        ValueError, match="several packages declare a decoder `both`: one_package:decode, other_package"
    ):
        stream({"format": "own", "decoder": "both"}, "id string")
