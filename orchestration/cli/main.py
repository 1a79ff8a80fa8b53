"""Command line: `frazil`, its commands and the groups in which its help shows them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import click
from click.shell_completion import CompletionItem

from jobs.base.errors import FrazilError
from orchestration.cli.common.consent import ConsentNeeded, keep_command_line
from orchestration.cli.common.interrupts import Interrupts, Terminated
from orchestration.cli.common.lazy_commands import LazyCommands, quick_imports
from orchestration.cli.common.options import stream_completions
from resources.deployment_folder import HOME_VARIABLE, SETTINGS_VARIABLE

_PACKAGE = "orchestration.cli"
_OWN = ("assets", "jobs", "orchestration", "resources")
# Imported when it is asked for: `frazil up` should not wait for PyIceberg, nor `frazil status` for the web server.
_COMMANDS = {
    "init": ("local.init", "Make a new deployment, with a stream for a file of records or a topic."),
    "doctor": ("local.doctor.command", "Check installation, machine and services; bundle it for a maintainer."),
    "import": ("connect.import_connectors", "Make streams and settings of Kafka Connect's connectors."),
    "validate": ("stream_files.validate.command", "Check streams and settings, also against what is live."),
    "plan": ("streams.plan.command", "Show what the files would change against what is live."),
    "apply": ("streams.plan.apply", "Carry out what plan shows: tables first, then drivers."),
    "schema": ("stream_files.schema.command", "Infer, compare and change the columns of streams and tables."),
    "contract": ("tables.contract", "Take over a suite of Great Expectations as a contract."),
    "preview": ("stream_files.preview.command", "Show what a stream, or another file of it, makes of records."),
    "test": ("stream_files.stream_cases", "Run the cases of streams: records in, rows and dead letters out."),
    "generate": ("local.generate", "Produce records that a stream lands, good and bad ones."),
    "up": ("local.broker", "Start the local broker, and the local schema registry."),
    "down": ("local.broker", "Stop the local broker and schema registry."),
    "run": ("streams.run.command", "Land all present records of a stream's topics, or of all streams."),
    "status": ("streams.status.command", "Show every stream: state, lag, rate, last commit, last error."),
    "watch": ("streams.status.watch", "Show every stream, refreshed in place until Ctrl-C."),
    "logs": ("streams.logs.command", "Show the log of a stream's driver."),
    "start": ("streams.control", "Start streams: a driver of its own for each."),
    "stop": ("streams.control", "Stop streams after their batch."),
    "pause": ("streams.control", "Pause streams: the driver stays and reads nothing."),
    "resume": ("streams.control", "Let paused or stopped streams go on."),
    "restart": ("streams.control", "End streams' drivers after their batch, and start others."),
    "flush": ("streams.control", "Land all present records of a stream's topics now, without the trigger's pause."),
    "reset-offsets": ("streams.reset_offsets", "Move a stopped stream to other offsets."),
    "backfill": ("streams.backfill", "Land a range of offsets that a stream did not read."),
    "manifest": ("streams.manifest", "Print the pod in which Kubernetes would run a stream's driver."),
    "letters": ("dead_letters.letters", "Show dead letters and why they failed; dismiss or restore some."),
    "replay": ("dead_letters.replay", "Bring dead letters back, each record once."),
    "publish": ("tables.publish", "Append a stream's unpublished rows to main."),
    "release": ("tables.publish", "Publish rows that a contract quarantined, as they are."),
    "discard": ("tables.publish", "Make dead letters of rows that a contract quarantined."),
    "mirror": ("tables.mirror.command", "Merge changes into mirrors, which are what their source is."),
    "accept": ("streams.accept", "Answer the question that stopped a stream."),
    "registry": ("streams.registry", "Ask the schema registry; forget schemas after it was rebuilt."),
    "state": ("streams.state", "Copy what streams keep outside their tables to another store."),
    "takeover": ("connect.takeover", "Go on where an Iceberg sink of Kafka Connect has ended."),
    "offsets": ("connect.offsets", "Show a stream's position; hand it back to a sink's group."),
    "maintain": ("tables.maintain", "Keep tables healthy: compact, expire, clean up."),
    "compare": ("connect.compare.command", "Compare a stream's rows with those of a sink's table."),
    "certify": ("local.certify", "Kill drivers at every failpoint, and prove that nothing is lost."),
    "audit": ("tables.audit", "Prove that every record read is in its tables, exactly once."),
    "check": ("tables.check", "Check new rows in a stream's tables against its contract."),
    "at": ("tables.at.command", "From a record, a row or a time to the snapshot, and back."),
    "query": ("tables.query.command", "Show rows of a stream's tables, by SQL or the first ones."),
    "shell": ("tables.shell", "Open Python with Spark and the deployment's catalog."),
    "register": ("tables.register", "Enter a table that another catalog made in this one."),
    "tag": ("tables.tag", "Name a snapshot, and keep it from expiry."),
    "dev": ("local.dev.command", "Start the local broker and Dagster's web UI and daemon."),
    "open": ("local.open_page", "Open a stream's page in Dagster."),
    "demo": ("local.demo.command", "Show it all: produce payments, land them, add them up."),
    "connect-api": ("connect.connect_api", "Serve Kafka Connect's REST interface over the streams."),
    "completion": ("local.completion", "Print what completes commands and streams in a shell."),
}  # fmt: skip
# The help's sections, each with its commands in the order in which one meets them.
_GROUPS = {
    "Run": ("run", "start", "stop", "pause", "resume", "restart", "flush", "apply"),
    "Look": ("status", "watch", "logs", "preview", "query", "shell", "open", "letters", "at"),
    "Repair": ("replay", "accept", "release", "discard", "reset-offsets", "backfill"),
    "Tables": ("schema", "publish", "mirror", "maintain", "register", "tag"),
    "Kafka Connect": ("import", "compare", "takeover", "offsets", "connect-api"),
    "Check": ("validate", "plan", "check", "audit", "contract", "test", "certify"),
    "Set up": (
        "init", "doctor", "demo", "dev", "up", "down", "generate", "completion", "registry", "state", "manifest",
    ),
}  # fmt: skip
# Their argument is completed without importing them; a command's own options are asked of itself.
_TAKE_STREAMS = frozenset({
    "accept", "apply", "at", "audit", "backfill", "check", "compare", "discard", "flush", "generate", "letters",
    "logs", "maintain", "manifest", "offsets", "open", "pause", "plan", "preview", "publish", "query", "release",
    "replay", "reset-offsets", "restart", "resume", "run", "start", "status", "stop", "tag", "takeover", "test",
    "validate", "watch",
})  # fmt: skip


class Commands(LazyCommands):
    """Group of all commands of `frazil`, which shows errors without a stack trace."""

    table: ClassVar = {name: (f"{_PACKAGE}.{module}", text) for name, (module, text) in _COMMANDS.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of the help."""
        return [name for names in self.sections().values() for name in names]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options before the command; all that was typed is noted for errors that repeat it."""
        keep_command_line(ctx, args)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is typed, or as much of it as completion needs."""
        if ctx.resilient_parsing and len(args) == 1 and args[0] in _TAKE_STREAMS:
            return args[0], _StreamsOf(args[0], self), []
        return super().resolve_command(ctx, args)

    def sections(self) -> dict[str, list[str]]:
        """The commands that exist, by group; one without a group is shown in the end."""
        grouped = {name for names in _GROUPS.values() for name in names}
        sections = {title: [name for name in names if name in self.table] for title, names in _GROUPS.items()}
        sections["Other"] = [name for name in self.table if name not in grouped]
        return {title: names for title, names in sections.items() if names}

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; exit status 1 after an error, 2 if it lacks `--yes`, 130 after Ctrl-C, 143 after SIGTERM."""
        try:
            with Interrupts():
                return super().invoke(ctx)
        except FrazilError as problem:
            _print_error(problem)
            ctx.exit(2 if isinstance(problem, ConsentNeeded) else 1)
        except KeyboardInterrupt as interrupt:
            _stopped(ctx, interrupt)
        except BrokenPipeError:
            # The reader (`| head`) has enough; Python would complain again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as problem:
            if isinstance(problem, ModuleNotFoundError) and (problem.name or "").split(".")[0] not in _OWN:
                _print_error(_missing_package(problem))
                ctx.exit(1)
            # Imported here: as a rule nobody needs it.
            from orchestration.cli.common.unexpected_error import is_interrupt, unexpected_error

            if (interrupt := is_interrupt(problem)) is not None:
                _stopped(ctx, interrupt)
            _print_error(unexpected_error(problem, f"frazil {ctx.invoked_subcommand or ''}".rstrip(), ctx.obj))
            ctx.exit(1)


class _StreamsOf(click.Command):
    """A command as completion sees it that waits for a stream's name: imported only if its options are asked for."""

    def __init__(self, name: str, commands: Commands) -> None:
        super().__init__(name)
        self._commands: Commands = commands

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The streams, or the command's options."""
        if not incomplete.startswith("-"):
            return stream_completions(ctx, incomplete)
        command = self._commands.get_command(ctx, self.name or "")
        assert command is not None, f"{self.name} is in the table of commands"
        with command.make_context(self.name, [], parent=ctx.parent, resilient_parsing=True) as real:
            return command.shell_complete(real, incomplete)


def _missing_package(problem: ModuleNotFoundError) -> FrazilError:
    from jobs.clients.install.preflight import REINSTALL

    return FrazilError(f"A package that frazil needs is missing in {sys.prefix}: {problem}.", fix=REINSTALL)


def _print_error(problem: FrazilError) -> None:
    # Imported here: help and completion draw no tables.
    from orchestration.cli.common.terminal import print_error

    print_error(problem)


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
    # Imported here: help and completion do without the models of streams and settings.
    with quick_imports():
        from resources.deployment import Deployment

    ctx.obj = Deployment.at(home, settings_file)


if __name__ == "__main__":
    main()
