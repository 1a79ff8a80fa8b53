"""Generated records: the good ones land, each bad one is refused for the reason that its kind says."""

from __future__ import annotations

import random
from datetime import timedelta

import pyarrow as pa
import pytest

from jobs.errors import FrazilError
from jobs.formats.decoder import Decoded
from jobs.formats.decoder_spec import DeclaredSchema, DecoderSpec, resolved
from jobs.formats.known_formats import FORMATS
from jobs.generate.formats import generator_for
from jobs.generate.record import FIRST_TIME, generated

COLUMNS = (
    "j json, n1 int as number, n2 long as text, n3 double as text, "
    "u uuid, c time, c2 time as nanos_of_day, x fixed(3), "
    "id string not null, at timestamptz not null, local timestamp, ms timestamptz as epoch_ms, day date, d2 date as "
    "epoch_days, amount decimal(12,2) not null, rate decimal(9,4) as text, n int, big long, f float, d double, ok "
    "boolean, raw binary, hex binary as hex, tags list<string>, o struct<a int not null, b list<struct<c double>>>, "
    "m map<string, long>"
)
CLASSES = {
    "truncated_json": "malformed_json",
    "not_an_object": "not_an_object",
    "empty_value": "empty_value",
    "invalid_utf8": "invalid_utf8",
    "wrong_type": "wrong_type",
    "missing_field": "missing_field",
    "null_in_required": "null_in_required",
    "out_of_range": "out_of_range",
    "wrong_length": "wrong_length",
}


def spec(kind: str, columns: str) -> DecoderSpec:
    options = {"unknown_fields": "fail"} if kind == "json" else {}
    return DecoderSpec(kind, DeclaredSchema(columns), options)


def decoded(which: DecoderSpec, values: list[bytes]) -> Decoded:
    return FORMATS[which.kind].reference(which).decode(pa.array(values, pa.binary()))


PRIMITIVES = [
    ("string", "v string"),
    ("bytes", "v binary"),
    ("boolean", "v boolean"),
    ("short", "v int"),
    ("int", "v int"),
    ("long", "v long"),
    ("float", "v float"),
    ("double", "v double"),
]
FORMATS_MADE = [("json", COLUMNS), ("json", "a list<int>"), ("json", "s string"), *PRIMITIVES]


@pytest.mark.parametrize(("kind", "columns"), FORMATS_MADE)
def test_good_records_land(kind: str, columns: str) -> None:
    which = spec(kind, columns)
    made = generator_for(resolved(which))
    values = [made.good(random.Random(n), FIRST_TIME + timedelta(seconds=n)) for n in range(200)]
    assert decoded(which, values).failures == []


@pytest.mark.parametrize(("kind", "columns"), FORMATS_MADE)
def test_bad_records_fail_for_the_reason_of_their_kind(kind: str, columns: str) -> None:
    which = spec(kind, columns)
    made = generator_for(resolved(which))
    for bad in made.bad_kinds:
        values = [made.bad(bad, random.Random(n), FIRST_TIME) for n in range(50)]
        failures = decoded(which, values).failures
        assert {failure.error_class for failure in failures} == {CLASSES[bad]}
        assert len(failures) == len(values)
    assert bool(made.bad_kinds) == (kind != "bytes")


def test_the_same_seed_gives_the_same_records() -> None:
    made = generator_for(resolved(spec("json", COLUMNS)))

    def some(seed: str) -> list[bytes]:
        return [generated(made, seed, n, FIRST_TIME, 0.1).value for n in range(50)]

    assert some("a") == some("a")
    assert some("a") != some("b")


def test_about_as_many_are_bad_as_asked_for() -> None:
    made = generator_for(resolved(spec("json", COLUMNS)))
    kinds = [generated(made, "seed", n, FIRST_TIME, 0.2).kind for n in range(1_000)]
    assert 150 < len([kind for kind in kinds if kind != "good"]) < 250
    assert set(kinds) == {"good", *made.bad_kinds}
    assert {generated(made, "seed", n, FIRST_TIME, 0.0).kind for n in range(100)} == {"good"}


def test_what_cannot_be_generated_is_named() -> None:
    # The decoder takes no key twice, so a declared key that differs by case only cannot be written.
    with pytest.raises(FrazilError, match="values of the format nothing cannot be generated"):
        generator_for(resolved(DecoderSpec("nothing", DeclaredSchema("a int"))))
