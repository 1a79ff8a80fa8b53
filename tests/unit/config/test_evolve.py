"""The evolve block: answers by where a stream's columns are from, and what does not go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.config.documents.validation import SpecError
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.records.schema.needs import NO_EVOLUTION, EvolutionPolicy


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


CONTRACT = {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]}


def publish_spec(tmp_path: Path, **more: Any) -> StreamSpec:
    file = tmp_path / "payments.yaml"
    document = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "id string"},
        "table": {"name": "orders.payments"},
        **more,
    }
    file.write_text(yaml.safe_dump(document))
    return load_stream(file)


def test_rows_go_to_ingest(tmp_path: Path) -> None:
    found = publish_spec(tmp_path, contract=CONTRACT, publish={"gate": "contract"})
    assert [each.branch for each in found.targets] == ["ingest", "main"]
    named = publish_spec(tmp_path, contract=CONTRACT, publish={"gate": "contract", "branch": "landing"})
    assert named.branch_of("orders.payments") == "landing"


def test_it_hashes_as_the_branch_does(tmp_path: Path) -> None:
    gated = publish_spec(tmp_path, contract=CONTRACT, publish={"gate": "contract"})
    by_hand = publish_spec(tmp_path, contract=CONTRACT, table={"name": "orders.payments", "branch": "ingest"})
    assert gated.config_hash == by_hand.config_hash != publish_spec(tmp_path, contract=CONTRACT).config_hash


def test_without_it_a_driver_is_not_started_anew(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    gated = generation(publish_spec(tmp_path, contract=CONTRACT, publish={"gate": "contract"}), settings)
    assert gated != generation(publish_spec(tmp_path, contract=CONTRACT), settings)
    assert generation(publish_spec(tmp_path, contract=CONTRACT), settings) == generation(
        publish_spec(tmp_path), settings
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "publish.gate.*needs a critical expectation of the contract about the rows"),
        (
            {"contract": {"expectations": [{**CONTRACT["expectations"][0], "severity": "warning"}]}},
            "publish.gate.*needs a critical expectation",
        ),
        ({"contract": {"dead_letters": CONTRACT["expectations"]}}, "publish.gate.*needs a critical expectation"),
        (
            {"contract": CONTRACT, "publish": {"gate": "contract", "branch": "main"}},
            "publish.branch.*must be another branch than main",
        ),
        ({"contract": CONTRACT, "publish": {"gate": "contract", "every": "30s"}}, "publish.every.*at least 1m"),
        ({"contract": CONTRACT, "publish": {}}, "publish.gate"),
        ({"contract": CONTRACT, "publish": {"gate": "somebody"}}, "publish.gate"),
        (
            {"contract": CONTRACT, "table": {"name": "orders.payments", "branch": "other"}},
            "table.branch.*goes without publish, which has its own branch: ingest",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(FrazilError, match=said):
        publish_spec(tmp_path, **{"publish": {"gate": "contract"}, **more})


def test_types_are_widened_by_a_person(tmp_path: Path) -> None:
    decode = {"value": "json", "schema": "infer"}
    free = publish_spec(tmp_path, decode=decode)
    gated = publish_spec(tmp_path, decode=decode, contract=CONTRACT, publish={"gate": "contract"})
    assert (free.evolution.widen, gated.evolution.widen) == ("auto", "propose")
    assert (gated.evolution.add, gated.evolution.relax) == ("auto", "auto")
    said = publish_spec(
        tmp_path, decode=decode, contract=CONTRACT, publish={"gate": "contract"}, evolve={"widen": "auto"}
    )
    assert said.evolution.widen == "auto"


def branch_spec(tmp_path: Path, **table: object) -> StreamSpec:
    file = tmp_path / "payments.yaml"
    document = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "id string"},
        "table": {"name": "orders.payments", **table},
    }
    file.write_text(yaml.safe_dump(document))
    return load_stream(file)


def test_rows_go_to_the_branch_and_letters_to_main(tmp_path: Path) -> None:
    found = branch_spec(tmp_path, branch="ingest")
    assert {each.name: each.branch for each in found.targets} == {
        "orders.payments": "ingest",
        "orders.payments_dead": "main",
    }
    assert found.branch_of("orders.payments") == "ingest"
    assert found.branch_of("orders.payments_dead") == found.branch_of("orders.others") == "main"


def test_another_branch_is_another_configuration(tmp_path: Path) -> None:
    assert branch_spec(tmp_path).config_hash == branch_spec(tmp_path, branch="main").config_hash
    assert branch_spec(tmp_path).config_hash != branch_spec(tmp_path, branch="ingest").config_hash


@pytest.mark.parametrize("name", ["", "1", "a b", "a'b", "a.b", "x" * 64, "a/b"])
def test_what_is_no_branch_s_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(FrazilError, match=r"table\.branch.*must be a branch's name"):
        branch_spec(tmp_path, branch=name)
