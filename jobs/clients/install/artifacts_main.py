"""Command `python -m jobs.clients.install.artifacts`: fetches and checks the JVM artifacts that frazil runs on."""

from __future__ import annotations

import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from jobs.base.errors import FrazilError
from jobs.clients.install.artifacts import CHECKSUMS, fetch_unchecked, resolve_jars
from jobs.clients.install.coordinates import FETCHED_AT_SETUP, ArtifactSet, artifact_sets
from jobs.clients.install.preflight import preflight

_HEADER = """\
# SHA-256 of every JVM artifact, for the versions in coordinates.toml; written by
# `python -m jobs.clients.install.artifacts --write-checksums`. A jar that differs is refused.
"""


@click.command(help="Fetch the JVM artifacts that this machine lacks, and check all of them.")
@click.option("--write-checksums", is_flag=True, help="For maintainers: accept what coordinates.toml names today.")
@click.option("--quiet", is_flag=True, help="Print nothing if everything exists already.")
def main(write_checksums: bool, quiet: bool) -> None:
    try:
        preflight()
        if write_checksums:
            _write_checksums()
        else:
            _resolve_all(quiet=quiet)
    except FrazilError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)


def _resolve_all(*, quiet: bool) -> None:
    # Both sets at once, because Ivy fetches one file after the other and mostly waits.
    with ThreadPoolExecutor(len(FETCHED_AT_SETUP)) as pool:
        futures = {name: pool.submit(resolve_jars, name, repair=True, on_progress=_say) for name in FETCHED_AT_SETUP}
        for name, future in futures.items():
            jars = future.result()
            if not quiet:
                megabytes = sum(jar.stat().st_size for jar in jars) / 1e6
                click.echo(f"{name}: {len(jars)} jars, {megabytes:.0f} MB, checked, in {jars[0].parent}")


def _write_checksums() -> None:
    lines: list[str] = []
    with tempfile.TemporaryDirectory(prefix="frazil-jars-") as folder:

        def fetch(name: ArtifactSet) -> dict[str, str]:
            return fetch_unchecked(name, Path(folder) / name, _say)

        sets = artifact_sets()
        with ThreadPoolExecutor(len(sets)) as pool:
            for name, found in zip(sets, pool.map(fetch, sets), strict=True):
                lines.extend(f"{digest}  {name}/{filename}\n" for filename, digest in sorted(found.items()))
    CHECKSUMS.write_text(_HEADER + "".join(lines))
    click.echo(f"{len(lines)} checksums written to {CHECKSUMS}; look at the difference before you commit it")


_output = threading.Lock()


def _say(line: str) -> None:
    with _output:
        click.echo(f"  {line}")
