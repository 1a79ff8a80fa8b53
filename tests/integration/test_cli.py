"""`frazil run` under Ctrl-C, and what `frazil validate` and `frazil status` say of a stream before it has run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from orchestration.cli.main import main
from tests.helpers.waiting import wait_for
from tests.integration.marked import Marked
from tests.integration.pipeline import GOOD, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def printed(made: Pipeline, *arguments: str) -> str:
    """The output of a command in this process."""
    result = CliRunner().invoke(main, ["--home", str(made.home), *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_ctrl_c_during_a_run_leaves_no_process_and_loses_nothing(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    made = pipeline()
    checked = " ".join(printed(made, "validate").split())
    assert f"topic {made.stream} (2 partitions) exists" in checked
    assert f"table {made.table_name} is not in catalog frazil yet" in checked
    made.produce({GOOD: 3000})
    (status,) = json.loads(printed(made, "status", "--json"))["streams"]
    assert (status["state"], status["lag"]) == ("never ran", 3000)
    command = Marked(made.home, ["run", made.stream])
    log = made.folder().root / "spark.log"
    wait_for(lambda: bool(command.living("SparkSubmit")) and log.exists(), "Spark's JVM")
    wait_for(lambda: "0" in _batches(made), "the first batch to be planned")
    command.interrupt()
    status, output, errors = command.finish(300)
    assert (status, output) == (130, "")
    assert errors.rstrip().endswith("Stopped.")
    assert "Traceback" not in errors
    assert command.living() == []
    made.drain(spark)
    made.assert_exactly_once()


def _batches(made: Pipeline) -> set[str]:
    return {path.name for path in made.folder().root.glob("checkpoints/*/offsets/*")}
