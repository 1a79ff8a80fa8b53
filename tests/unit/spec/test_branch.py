"""`table.branch`: which names are branches, and what a stream's file with one says of its targets."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from jobs.errors import FrazilError
from jobs.spec.loading import load_stream
from jobs.spec.models import StreamSpec


def spec(tmp_path: Path, **table: object) -> StreamSpec:
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
    found = spec(tmp_path, branch="ingest")
    assert {each.name: each.branch for each in found.targets} == {
        "orders.payments": "ingest",
        "orders.payments_dead": "main",
    }
    assert found.branch_of("orders.payments") == "ingest"
    assert found.branch_of("orders.payments_dead") == found.branch_of("orders.others") == "main"


def test_another_branch_is_another_configuration(tmp_path: Path) -> None:
    assert spec(tmp_path).config_hash == spec(tmp_path, branch="main").config_hash
    assert spec(tmp_path).config_hash != spec(tmp_path, branch="ingest").config_hash


@pytest.mark.parametrize("name", ["", "1", "a b", "a'b", "a.b", "x" * 64, "a/b"])
def test_what_is_no_branch_s_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(FrazilError, match=r"table\.branch.*must be a branch's name"):
        spec(tmp_path, branch=name)
