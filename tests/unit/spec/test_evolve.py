"""The evolve block: answers by where a stream's columns are from, and what does not go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.schema.needs import NO_EVOLUTION, EvolutionPolicy
from jobs.spec.generation import generation
from jobs.spec.loading import load_stream
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.validation import SpecError


def document(schema: str = "infer", evolve: Any = None, **decode: Any) -> dict[str, Any]:
    made = {
        "stream": "payments",
        "source": {"topics": ["p"]},
        "decode": {"value": "json", "schema": schema, **decode},
        "table": {"name": "orders.payments"},
    }
    return made | ({"evolve": evolve} if evolve is not None else {})


def spec(*given: Any, **decode: Any) -> StreamSpec:
    return StreamSpec.model_validate(document(*given, **decode))


def test_answers_by_the_source_of_the_columns() -> None:
    assert spec("infer").evolution == EvolutionPolicy("auto", "auto", "auto")
    assert spec("table").evolution == NO_EVOLUTION
    assert spec("id string").evolution == NO_EVOLUTION
    chosen = spec("table", {"add": "propose", "limits": {"depth": 3}}).evolution
    assert (chosen.add, chosen.widen, chosen.depth) == ("propose", "ignore", 3)


def test_whoever_alters_no_table_proposes() -> None:
    assert spec("infer").evolution.elsewhere == EvolutionPolicy("propose", "propose", "propose")
    assert spec("infer", {"add": "ignore"}).evolution.elsewhere.add == "ignore"


def test_it_changes_hash_and_generation_only_where_it_is_used(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    plain, same, other = spec("table"), spec("table", {}), spec("table", {"add": "auto"})
    assert plain.config_hash == same.config_hash != other.config_hash
    assert generation(plain, settings) == generation(same, settings) != generation(other, settings)
    limits = spec("table", {"limits": {"columns": 5}})
    assert limits.config_hash == plain.config_hash
    assert generation(limits, settings) != generation(plain, settings)


def test_options_of_inference_count_where_they_are_not_the_default() -> None:
    plain = spec("infer")
    same = spec("infer", value={"format": "json", "infer": {"fractions": "DOUBLE"}})
    assert plain.config_hash == same.config_hash
    asked = spec("infer", value={"format": "json", "infer": {"fractions": "decimal( 12, 2 )"}})
    assert asked.decode.options["infer"]["fractions"] == "decimal(12,2)"
    assert asked.config_hash != plain.config_hash


@pytest.mark.parametrize(
    ("given", "place", "message"),
    [
        (document("id string", {"add": "auto"}), "evolve", "`frazil schema apply payments` alters the table"),
        (
            document("infer", unknown_fields="fail"),
            "evolve.add",
            "has to be ignore where decode.unknown_fields is fail",
        ),
        (document("table", {"clash": "shadow"}, value="protobuf"), "evolve.clash", "for JSON only"),
        (document("infer", {"add": "yes"}), "evolve.add", "'auto'"),
        (document("infer", {"limits": {"depth": 99}}), "evolve.limits.depth", "24"),
        (document("infer", value={"format": "json", "infer": {"fractions": "int"}}), "infer.fractions", "decimal(P,S)"),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], place: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "payments.yaml"
    path.write_text(yaml.safe_dump(given))
    with pytest.raises(SpecError) as caught:
        load_stream(path)
    (problem,) = caught.value.problems
    assert place in problem and message in problem
