"""Streams that write a branch: rows of a branch, and reports of commands as JSON."""

from __future__ import annotations

import json

from click.testing import CliRunner

from jobs.tables.commit.history.branch import on_branch
from orchestration.cli.main import main
from tests.integration.pipeline import Pipeline


def on(one: Pipeline, branch: str) -> Pipeline:
    """Let the stream write this branch."""
    one.write_spec(table={"name": one.table_name, "partition_by": ["day(created_at)"], "branch": branch})
    return one


def rows(one: Pipeline, branch: str = "main") -> int:
    """Count the rows of a branch."""
    return on_branch(one.catalog().load_table(one.table_name), branch).scan().count()


def told(one: Pipeline, *words: str) -> dict:
    """Run a command for the stream and return its JSON report."""
    result = CliRunner().invoke(main, ["--home", str(one.home), *words, one.stream, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
