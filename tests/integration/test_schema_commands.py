"""Schema commands against a real broker: records are generated, and a stream's file is inferred from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jobs.spec.loading import load_stream
from orchestration.cli.main import main
from tests.integration.pipeline import Pipeline

pytestmark = pytest.mark.integration


def typed(home: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(home), *words])


def test_a_stream_is_inferred_from_the_records_that_another_generates(
    pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    one = pipeline()
    home = one.home
    made = typed(home, "generate", one.stream, "--rate", "5000", "--count", "400", "--bad", "5%", "--seed", "1")
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith(f"{one.stream}: 400 records in topic {one.stream}, among them ")

    file = tmp_path / "inferred.yaml"
    words = ("schema", "infer", one.stream, "--times", "--stream", "inferred", "--output", str(file))
    assert typed(home, *words).exit_code == 0
    spec = load_stream(file)
    assert spec.source.topics == (one.stream,)
    assert {field.name for field in spec.declared_rows.fields} <= {
        field.name for field in one.spec().declared_rows.fields
    }
    again = typed(home, *words)
    assert again.exit_code == 1
    assert "nothing is written over it" in again.stderr
