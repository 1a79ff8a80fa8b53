"""Command line: `frazil` and its list of commands."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from jobs.base.errors import FrazilError
from jobs.base.system.pandas_import import without_pandas
from orchestration.cli.common.interrupts import Interrupts, Terminated
from orchestration.cli.common.terminal import print_error
from resources.deployment import HOME_VARIABLE, SETTINGS_VARIABLE, Deployment

_PACKAGE = "orchestration.cli"
# Imported when it is asked for: `frazil up` should not wait for PyIceberg, nor `frazil status` for the web server.
_COMMANDS = {
    "init": ("local.init", "Make a new deployment, with a stream for a file of records or a topic."),
    "doctor": ("local.doctor.command", "Check installation, machine and services; bundle it for a maintainer."),
    "validate": ("stream_files.validate.command", "Check streams and settings, also against what is live."),
    "schema": ("stream_files.schema.command", "Infer, compare and change the columns of streams and tables."),
    "contract": ("tables.contract", "Take over a suite of Great Expectations as a contract."),
    "preview": ("stream_files.preview.command", "Show what a stream, or another file of it, makes of records."),
    "test": ("stream_files.stream_cases", "Run the cases of streams: records in, rows and dead letters out."),
    "generate": ("local.generate", "Produce records that a stream lands, good and bad ones."),
    "up": ("local.broker", "Start the local broker, and the local schema registry."),
    "down": ("local.broker", "Stop the local broker and schema registry."),
    "run": ("streams.run.command", "Land everything that a stream's topics, or all, hold now."),
    "status": ("streams.status.command", "Show every stream: state, lag, rate, last commit, last error."),
    "watch": ("streams.status.watch", "Show every stream, refreshed in place until Ctrl-C."),
    "logs": ("streams.logs.command", "Show the log of a stream's driver."),
    "start": ("streams.control", "Start streams: a driver of its own for each."),
    "stop": ("streams.control", "Stop streams after their batch."),
    "pause": ("streams.control", "Pause streams: the driver stays and reads nothing."),
    "resume": ("streams.control", "Let paused or stopped streams go on."),
    "restart": ("streams.control", "End streams' drivers after their batch, and start others."),
    "flush": ("streams.control", "Land now what a stream's topics hold, without the trigger's pause."),
    "reset-offsets": ("streams.reset_offsets", "Move a stopped stream to other offsets."),
    "manifest": ("streams.manifest", "Print the pod in which Kubernetes would run a stream's driver."),
    "letters": ("dead_letters.letters", "Show dead letters and why they failed; dismiss or restore some."),
    "replay": ("dead_letters.replay", "Bring dead letters back, each record once."),
    "publish": ("tables.publish", "Append to main what a stream has landed on its branch."),
    "release": ("tables.publish", "Publish what a contract holds, as it is."),
    "discard": ("tables.publish", "Make dead letters of what a contract holds."),
    "mirror": ("tables.mirror.command", "Merge changes into mirrors, which are what their source is."),
    "accept": ("streams.accept", "Answer the question that stopped a stream."),
    "registry": ("streams.registry", "Ask the schema registry; forget schemas after it was made anew."),
    "state": ("streams.state", "Copy what streams keep outside their tables to another store."),
    "maintain": ("tables.maintain", "Keep tables healthy: compact, expire, clean up."),
    "certify": ("local.certify", "Kill drivers at every step, and prove that nothing is lost."),
    "audit": ("tables.audit", "Prove that every record read stands in its tables, exactly once."),
    "check": ("tables.check", "Hold what is new in a stream's tables against its contract."),
    "at": ("tables.at.command", "From a record, a row or a time to the snapshot, and back."),
    "query": ("tables.query.command", "Show rows of a stream's tables, by SQL or the first ones."),
    "shell": ("tables.shell", "Open Python with Spark and the deployment's catalog."),
    "tag": ("tables.tag", "Name a snapshot, and keep it from expiry."),
    "dev": ("local.dev.command", "Start the local broker and Dagster's web UI and daemon."),
    "open": ("local.open_page", "Open a stream's page in Dagster."),
    "demo": ("local.demo.command", "Show it all: produce payments, land them, add them up."),
}  # fmt: skip


class Commands(click.Group):
    """Loads a command's module on first use, and tells errors without a stack trace."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order in which one meets them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None if there is none."""
        if cmd_name not in _COMMANDS:
            return None
        # pyarrow, with its first array, would import pandas, which few commands have a use for, and which ask by name.
        with without_pandas():
            module = importlib.import_module(f"{_PACKAGE}.{_COMMANDS[cmd_name][0]}")
        return getattr(module, cmd_name.replace("-", "_"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; exit status 1 after an error, 130 after Ctrl-C, 143 after SIGTERM."""
        try:
            with Interrupts():
                return super().invoke(ctx)
        except FrazilError as problem:
            print_error(problem)
            ctx.exit(1)
        except KeyboardInterrupt as interrupt:
            _stopped(ctx, interrupt)
        except BrokenPipeError:
            # The reader (`| head`) has enough; Python would complain again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as problem:
            # Imported here: as a rule nobody needs it.
            from orchestration.cli.common.unexpected_error import is_interrupt, unexpected_error

            if (interrupt := is_interrupt(problem)) is not None:
                _stopped(ctx, interrupt)
            print_error(unexpected_error(problem, f"frazil {ctx.invoked_subcommand or ''}".rstrip(), ctx.obj))
            ctx.exit(1)


def _stopped(ctx: click.Context, interrupt: KeyboardInterrupt) -> NoReturn:
    click.echo("\nStopped.", err=True)
    ctx.exit(143 if isinstance(interrupt, Terminated) else 130)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    envvar=HOME_VARIABLE,
    help="The deployment's folder, which holds streams/.  [default: the nearest one upwards that has it]",
)
@click.option(
    "--settings",
    "settings_file",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar=SETTINGS_VARIABLE,
    help="The settings file.  [default: frazil.yaml in the deployment's folder, else the embedded default]",
)
@click.version_option(package_name="frazil", prog_name="frazil")
@click.pass_context
def main(ctx: click.Context, home: Path | None, settings_file: Path | None) -> None:
    """frazil lands Kafka streams in Apache Iceberg tables, exactly once, and keeps those tables healthy."""
    ctx.obj = Deployment.at(home, settings_file)


if __name__ == "__main__":
    main()
