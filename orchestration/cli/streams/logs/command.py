"""Command `frazil logs`: logs of a stream's driver and watchdog, or the command that shows them elsewhere."""

from __future__ import annotations

import json
import shlex
import socket
import time
from collections.abc import Iterable
from pathlib import Path

import click

from jobs.base.errors import FrazilError
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.documents.secrets import Secret, secrets_in
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from jobs.streaming.driver.process.logs import driver_log, driver_output
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from jobs.streaming.supervision.documents.launches import (
    LaunchedProcess,
    planned_process,
    read_launch,
    read_launched_process,
)
from jobs.streaming.supervision.processes.groups import DriverGroup
from orchestration.cli.common.terminal import print_json
from orchestration.cli.streams.logs.log_entries import FollowedLog, LogEntry, followed_entries, newest_entries
from resources.deployment import Deployment

_POLL_SECONDS = 0.25
_LINES = 50


@click.command()
@click.argument("stream")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written, until Ctrl-C.")
@click.option(
    "--lines", "-n", type=click.IntRange(min=0), default=_LINES, show_default=True, metavar="N", help="Newest entries."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --follow a document on each line.")
@click.pass_obj
def logs(deployment: Deployment, stream: str, follow: bool, lines: int, as_json: bool) -> None:
    """Show the log of STREAM's driver, and what its process and its watchdog print, by time.

    A stream in a group has a log of its own as well. If the driver runs in a pod, on a cluster of Spark or on another
    machine, the command that shows its log there is printed. Times are in UTC.
    """
    settings = deployment.settings()
    folder = stream_folder(settings, stream)
    if not folder.kept():
        deployment.stream(stream)
    process = read_launched_process(folder.store) or _planned(folder)
    beat = read_heartbeat(folder.store)
    if commands := commands_elsewhere(process, beat, driver_log(folder.root), lines, follow=follow):
        _print_commands(stream, commands, as_json=as_json)
        return
    files = log_files(folder, settings, process, beat)
    if not follow and not any(file.exists() for file in files):
        raise FrazilError(
            f"stream {stream} has no log at {files[0]}: no driver of it has run on this machine.",
            fix=f"frazil start {stream}; frazil run prints to the terminal",
        )
    _Printer(settings, _secrets(deployment, stream), stream, files, as_json=as_json).run(lines, follow=follow)


def log_files(
    folder: StreamFolder, settings: Settings, process: LaunchedProcess | None, beat: Heartbeat | None
) -> list[Path]:
    """Files with the logs and the output of the stream's driver on this machine, the driver's log first.

    Args:
        folder: Folder of the stream's state.
        settings: Settings of the deployment.
        process: Process of the newest launch; its group's output has the lines of the group's watchdog.
        beat: Newest heartbeat.
    """
    group = (process.group if process else None) or (beat.group if beat else None)
    roots = [folder.root, *([DriverGroup.of(settings, group).folder.root] if group else [])]
    return [driver_log(folder.root), *map(driver_output, roots)]


def commands_elsewhere(
    process: LaunchedProcess | None, beat: Heartbeat | None, log: Path, lines: int, *, follow: bool
) -> dict[str, str]:
    """Commands that show the log of a driver that does not run on this machine; empty if it does.

    Args:
        process: Process of the newest launch; None if there was none.
        beat: Newest heartbeat, which names host and file.
        log: Default path of the log, for a driver without a heartbeat.
        lines: Number of newest lines to show.
        follow: Whether the commands go on with new lines.

    Returns:
        Command `log` for the driver's log, and `output` for the output of its process.
    """
    if process is None:
        return {}
    own = beat if beat is not None and beat.attempt >= process.attempt else None
    file = shlex.quote(own.log if own is not None and own.log else str(log))
    tail = f"tail -n {lines} {'-F ' if follow else ''}{file}"
    host = own.host if own is not None else process.host
    if process.launcher == "kubernetes" and process.handle:
        namespace, _, pod = process.handle.rpartition("/")
        kubectl = f"kubectl -n {namespace}" if namespace else "kubectl"
        printed = f"{kubectl} logs --tail={lines} {'-f ' if follow else ''}{pod}"
        return {"log": f"{kubectl} exec {pod} -- {tail}", "output": printed}
    if process.remote:
        return {"log": f"ssh {shlex.quote(host)} {shlex.quote(tail)}" if host else tail}
    if host and host != socket.gethostname():
        return {"log": f"ssh {shlex.quote(host)} {shlex.quote(tail)}"}
    return {}


def _planned(folder: StreamFolder) -> LaunchedProcess | None:
    launch = read_launch(folder.store)
    return planned_process(launch) if launch is not None else None


def _print_commands(stream: str, commands: dict[str, str], *, as_json: bool) -> None:
    if as_json:
        print_json({"stream": stream, "commands": commands})
        return
    click.echo(f"The driver of stream {stream} does not run on this machine. These show its log:", err=True)
    for command in commands.values():
        click.echo(command)


def _secrets(deployment: Deployment, stream: str) -> tuple[Secret, ...]:
    try:
        return tuple(secrets_in(deployment.stream(stream)))
    except FrazilError:
        # The stream's file is invalid or removed, and then its log is still needed.
        return ()


class _Printer:
    def __init__(
        self, settings: Settings, secrets: Iterable[Secret], stream: str, files: list[Path], *, as_json: bool
    ) -> None:
        self._settings: Settings = settings
        self._secrets: tuple[Secret, ...] = tuple(secrets)
        self._stream: str = stream
        self._files: list[Path] = files
        self._json: bool = as_json

    def run(self, lines: int, *, follow: bool) -> None:
        """Print the newest entries and, if the log is followed, each new one."""
        logs = [FollowedLog(file) for file in self._files]
        if follow:
            # Skipping before reading may show an entry twice; the other order may lose one.
            for log in logs:
                log.skip_to_end()
        entries = newest_entries(self._files, lines)
        if self._json and not follow:
            facts = [self._clean(entry).facts for entry in entries]
            print_json({"stream": self._stream, "files": [str(file) for file in self._files], "lines": facts})
            return
        self._print(entries)
        while follow:
            self._print(followed_entries(logs))
            time.sleep(_POLL_SECONDS)

    def _print(self, entries: Iterable[LogEntry]) -> None:
        for entry in entries:
            clean = self._clean(entry)
            print(json.dumps(clean.facts) if self._json else clean.text, flush=True)

    def _clean(self, entry: LogEntry) -> LogEntry:
        """Copy of an entry without secrets, which a JVM may print, and with escaped control characters."""
        text = redacted(self._settings, entry.text, self._secrets)
        shown = "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in text)
        return LogEntry(entry.at, shown, entry.file, entry.timed)
