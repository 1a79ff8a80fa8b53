"""`publish:` in a stream's file: what it needs, and what it says of targets and evolution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.errors import FrazilError
from jobs.spec.generation import generation
from jobs.spec.loading import load_stream
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings

CONTRACT = {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]}


def spec(tmp_path: Path, **more: Any) -> StreamSpec:
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
    found = spec(tmp_path, contract=CONTRACT, publish={"gate": "contract"})
    assert [each.branch for each in found.targets] == ["ingest", "main"]
    named = spec(tmp_path, contract=CONTRACT, publish={"gate": "contract", "branch": "landing"})
    assert named.branch_of("orders.payments") == "landing"


def test_it_hashes_as_the_branch_does(tmp_path: Path) -> None:
    gated = spec(tmp_path, contract=CONTRACT, publish={"gate": "contract"})
    by_hand = spec(tmp_path, contract=CONTRACT, table={"name": "orders.payments", "branch": "ingest"})
    assert gated.config_hash == by_hand.config_hash != spec(tmp_path, contract=CONTRACT).config_hash


def test_without_it_a_driver_is_not_started_anew(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    gated = generation(spec(tmp_path, contract=CONTRACT, publish={"gate": "contract"}), settings)
    assert gated != generation(spec(tmp_path, contract=CONTRACT), settings)
    assert generation(spec(tmp_path, contract=CONTRACT), settings) == generation(spec(tmp_path), settings)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "publish.gate.*needs a critical expectation about the rows"),
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
        spec(tmp_path, **{"publish": {"gate": "contract"}, **more})


def test_types_are_widened_by_a_person(tmp_path: Path) -> None:
    decode = {"value": "json", "schema": "infer"}
    free = spec(tmp_path, decode=decode)
    gated = spec(tmp_path, decode=decode, contract=CONTRACT, publish={"gate": "contract"})
    assert (free.evolution.widen, gated.evolution.widen) == ("auto", "propose")
    assert (gated.evolution.add, gated.evolution.relax) == ("auto", "auto")
    said = spec(tmp_path, decode=decode, contract=CONTRACT, publish={"gate": "contract"}, evolve={"widen": "auto"})
    assert said.evolution.widen == "auto"
