"""Command `frazil shell`: Python with the Spark session and the catalog of frazil's own jobs."""

from __future__ import annotations

import code
import importlib.util
import sys
import traceback
from typing import Any

import click
from pyiceberg.catalog import Catalog

from jobs.clients.catalog.catalog import connect_catalog, find_table
from jobs.clients.spark.catalog_conf import use_catalog
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from jobs.proof.lookup.reading import spark_sql
from orchestration.cli.common.sql_session import sql_session
from orchestration.cli.common.terminal import stderr_console
from resources.deployment import Deployment

_NO_TABLE = "NAMESPACE.TABLE"
# Spark's own SQL has neither branches and tags nor partition fields and write orders of Iceberg.
_SQL_OF_ICEBERG = {"spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
# PySpark's loggers of a failed statement. They print its stack trace as one long line of JSON, before the traceback.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@click.command()
@click.option("-c", "--command", metavar="CODE", help="Run CODE and end: status 1 if it raises.")
@click.pass_context
def shell(ctx: click.Context, command: str | None) -> None:
    """Open Python with `spark`, a session of PySpark whose current catalog is the deployment's.

    `sql` is spark.sql with Iceberg's extensions, `catalog` is PyIceberg's catalog, and times are in UTC. IPython is
    used if it is installed. The session may write; `frazil query` only reads, and needs no JVM.
    """
    deployment: Deployment = ctx.obj
    deployment.require()
    settings = deployment.prepared_settings()
    with connect_catalog(settings) as catalog, sql_session(settings, "shell", _SQL_OF_ICEBERG) as session:
        if command is None:
            stderr_console().print("Starting Spark …", markup=False)
        spark = session.get()
        _silence_loggers()
        use_catalog(spark, settings)
        spark.catalog.setCurrentCatalog(settings.catalog.name)
        names = {"__name__": "__main__", "spark": spark, "sql": spark.sql, "catalog": catalog}
        if command is not None:
            ctx.exit(run_code(command, names, settings))
        interact(names, banner(settings.catalog.name, _example_table(deployment, catalog)))


def _silence_loggers() -> None:
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def run_code(text: str, names: dict[str, Any], settings: Settings) -> int:
    """Run code in a namespace.

    Returns:
        Exit status: that of SystemExit; 1 after another exception, whose stack trace goes to standard error.
    """
    try:
        exec(compile(text, "<frazil shell -c>", "exec"), names)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception:
        click.echo(redacted(settings, traceback.format_exc()), err=True, nl=False)
        return 1
    finally:
        sys.stdout.flush()
    return 0


def interact(names: dict[str, Any], text: str) -> None:
    """Read and run code until the end of the input.

    Args:
        names: Namespace of the code.
        text: Text that is printed first.
    """
    if sys.stdin.isatty() and importlib.util.find_spec("IPython") is not None:
        import IPython  # pyright: ignore[reportMissingImports]

        click.echo(text)
        IPython.start_ipython(argv=["--no-banner"], user_ns=names)
        return
    if sys.stdin.isatty():
        # Importing it gives the prompt its history and keys.
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    code.interact(banner=text, local=names, exitmsg="")


def banner(catalog: str, table: str) -> str:
    """Banner with three example lines.

    Args:
        catalog: Name of the catalog.
        table: Full name of a table within it.
    """
    name = spark_sql(catalog, table, None, []).removeprefix("SELECT * FROM ")
    return "\n".join(
        (
            f'spark.table("{name}").show()',
            f'sql("SELECT count(*) FROM {name}").show()',
            f'sql("SELECT committed_at, operation, snapshot_id FROM {name}.snapshots ORDER BY 1 DESC").show()',
        )
    )


def _example_table(deployment: Deployment, catalog: Catalog) -> str:
    """Table for the examples: the first existing table of a stream, else the first stream's table."""
    names = [spec.table.name for spec in deployment.streams()[0]]
    return next((name for name in names if find_table(catalog, name)), names[0] if names else _NO_TABLE)
