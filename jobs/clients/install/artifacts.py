"""JVM artifacts on this machine: resolved once by the Ivy inside PySpark, checked against committed checksums.

They are in `${FRAZIL_CACHE:-${XDG_CACHE_HOME:-~/.cache}/frazil}/jars/<set>-<digest of the set's checksum lines>/`, so
two checkouts with different lists do not interfere. A folder gets its name only after all its files were checked. Two
environment variables help behind a mirror or a proxy: `FRAZIL_IVY_SETTINGS` names an ivysettings file to use instead of
Ivy's defaults, and Java itself reads `JAVA_TOOL_OPTIONS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.base.system.locks import exclusive
from jobs.clients.install import ivy
from jobs.clients.install.coordinates import ArtifactSet, artifact_sets
from jobs.clients.state_store.durable_files import write_durably

CHECKSUMS = Path(__file__).with_name("artifacts.sha256")
REPAIR = f"{shlex.quote(sys.executable)} -m jobs.clients.install.artifacts"
_STAMP = "verified.json"
# A fetch without progress ends by itself; over a slow link a complete one takes long.
_LOCK_DEADLINE_SECONDS = 120 * 60.0
_UNPACK_DEADLINE_SECONDS = 300.0

OnProgress = Callable[[str], None]


class ArtifactError(FrazilError):
    """A JVM artifact is missing, differs from its checksum, or could not be fetched.

    Safe: Nothing was changed.
    Next: `make jars`
    """


def resolve_jars(name: ArtifactSet, *, repair: bool = False, on_progress: OnProgress | None = None) -> list[Path]:
    """Return the jars of a set, sorted by name, fetching the set if this machine does not have it yet.

    If the set is present, this costs one `stat` per jar; a jar whose size or time changed is hashed again.

    Args:
        name: `spark` (for `spark.jars`), `postgresql` and `aws` (also for `spark.jars`, if the catalog or its tables
            need them), `broker` (class path of the local broker), `registry` (archive with the local registry),
            `connect` (class path of the worker that `make bench` compares frazil with), `transforms` (class path of the
            worker that makes the tables of `tests/smt`), `rest_catalog` (class path of a server that tests start) or
            `debezium` (class path of a worker that tests start, and the archive of its connector).
        repair: Whether to fetch a damaged set again instead of raising an error.
        on_progress: Called with a line of text now and then during a fetch.

    Raises:
        ArtifactError: A jar is missing, has another checksum than the committed one, or could not be fetched.
        PreflightError: The set has to be fetched, and Java or PySpark is missing.
    """
    say = on_progress or _ignore
    expected = committed_checksums(name)
    folder = jar_folder(name)
    if not folder.exists():
        with _locked(folder, say):
            if not folder.exists():
                _fetch(name, expected, folder, say)
    try:
        _verify(name, expected, folder)
    except ArtifactError as error:
        if not repair:
            raise
        say(f"{name}: {error.message}; fetching the set again")
        with _locked(folder, say):
            shutil.rmtree(folder, ignore_errors=True)
            _fetch(name, expected, folder, say)
    return [folder / filename for filename in sorted(expected)]


def verify_jars(name: ArtifactSet) -> list[Path]:
    """Return the jars of a set, sorted by name, after hashing each; nothing is fetched or written.

    Raises:
        ArtifactError: The set is not on this machine, a jar is missing, or has another checksum than the committed one.
    """
    expected, folder = committed_checksums(name), jar_folder(name)
    if not folder.exists():
        raise ArtifactError(f"The set `{name}` of JVM artifacts is not in {folder.parent}", fix=REPAIR)
    for filename, digest in expected.items():
        _verify_hash(name, folder / filename, digest)
    return [folder / filename for filename in sorted(expected)]


def unpacked(archive: Path) -> Path:
    """Return the folder with the content of an archive, which is unpacked once, beside the archive.

    Args:
        archive: Archive from `resolve_jars`; a set has at most one.
    """
    folder = archive.parent / "unpacked"
    if not folder.exists():
        with exclusive(archive.parent / ".unpacking.lock", deadline_seconds=_UNPACK_DEADLINE_SECONDS):
            if not folder.exists():
                _unpack(archive, folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    # The folder gets its name only when it is complete.
    partial = folder.with_name(".unpacking")
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(archive) as file:
        file.extractall(partial, filter="data")
    partial.rename(folder)


def cache_folder() -> Path:
    """Return the folder for files that can be fetched again."""
    own = os.environ.get("FRAZIL_CACHE")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache").absolute() / "frazil"


def jar_folder(name: ArtifactSet) -> Path:
    """Return the folder of a set; it does not exist until the set is fetched."""
    lines = "".join(f"{digest}  {filename}\n" for filename, digest in sorted(committed_checksums(name).items()))
    return cache_folder() / "jars" / f"{name}-{hashlib.sha256(lines.encode()).hexdigest()[:12]}"


def committed_checksums(name: ArtifactSet) -> dict[str, str]:
    """Return file name → SHA-256 in hex, as committed in `artifacts.sha256`.

    Raises:
        ArtifactError: The list is missing or has no line for the set.
    """
    try:
        lines = CHECKSUMS.read_text().splitlines()
    except FileNotFoundError:
        raise ArtifactError(f"The list of checksums {CHECKSUMS} is missing", fix="git checkout -- it") from None
    pairs = [line.split(maxsplit=1) for line in lines if line.strip() and not line.startswith("#")]
    found = {path.removeprefix(f"{name}/"): digest for digest, path in pairs if path.startswith(f"{name}/")}
    if not found:
        raise ArtifactError(f"{CHECKSUMS} has no checksum for the set `{name}`", fix=REPAIR)
    return found


def fetch_unchecked(name: ArtifactSet, target: Path, say: OnProgress) -> dict[str, str]:
    """Fetch a set into `target` and return its checksums: the first half of accepting a new version.

    Raises:
        ArtifactError: Ivy could not fetch it.
        PreflightError: Java or PySpark is missing.
    """
    ivy.retrieve(artifact_sets()[name], target, work=target.with_suffix(".ivy"), label=name, on_progress=say)
    return {path.name: _sha256(path) for path in sorted(target.iterdir())}


def _fetch(name: ArtifactSet, expected: dict[str, str], folder: Path, say: OnProgress) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    # Ivy's cache is in this folder, so a later attempt continues an interrupted one.
    work = partial / "ivy"
    jars = partial / "jars"
    shutil.rmtree(jars, ignore_errors=True)
    jars.mkdir(parents=True)
    started = time.monotonic()
    say(f"{name}: fetching {len(expected)} jars into {folder}")
    try:
        ivy.retrieve(artifact_sets()[name], jars, work=work, label=name, total=len(expected), on_progress=say)
    except ivy.IvyError as error:
        raise ArtifactError(f"The {name} jars could not be fetched: {error.message}", fix=error.fix) from None
    try:
        found = {path.name for path in jars.iterdir()}
        if unknown := sorted(found - expected.keys()):
            raise ArtifactError(
                f"Ivy brought {unknown[0]} for the set `{name}`, which {CHECKSUMS.name} does not list",
                fix="python -m jobs.clients.install.artifacts --write-checksums, if the change of versions is wanted",
            )
        _verify(name, expected, jars)
    except ArtifactError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    jars.rename(folder)
    shutil.rmtree(partial, ignore_errors=True)
    say(f"{name}: {len(expected)} jars fetched and checked in {time.monotonic() - started:.0f} s")


def _verify(name: ArtifactSet, expected: dict[str, str], folder: Path) -> None:
    stamp = _read_stamp(folder)
    seen: dict[str, list[int]] = {}
    for filename, digest in expected.items():
        path = folder / filename
        try:
            status = path.stat()
        except FileNotFoundError:
            raise _missing(name, path, digest) from None
        seen[filename] = [status.st_size, status.st_mtime_ns]
        if stamp.get(filename) != seen[filename]:
            _verify_hash(name, path, digest)
    if seen != stamp:
        # The cache may be read-only: then the jars are hashed every time.
        with contextlib.suppress(OSError):
            write_durably(folder / _STAMP, json.dumps(seen, indent=0).encode(), shared=True)


def _verify_hash(name: ArtifactSet, path: Path, digest: str) -> None:
    try:
        found = _sha256(path)
    except FileNotFoundError:
        raise _missing(name, path, digest) from None
    if found != digest:
        raise ArtifactError(
            f"The jar {path} is not the committed one: expected sha256 {digest}, found {found}", fix=REPAIR
        )


def _missing(name: ArtifactSet, path: Path, digest: str) -> ArtifactError:
    return ArtifactError(
        f"The jar {path.name} of the set `{name}` is missing in {path.parent}"
        f" (expected sha256 {digest}, found no file)",
        fix=REPAIR,
    )


def _read_stamp(folder: Path) -> dict[str, list[int]]:
    try:
        stamp = json.loads((folder / _STAMP).read_bytes())
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


@contextlib.contextmanager
def _locked(folder: Path, say: OnProgress) -> Iterator[None]:
    """Let one process fetch a set; the lock ends with its process."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_name(f".{folder.name}.lock")
    try:
        with exclusive(
            lock,
            deadline_seconds=_LOCK_DEADLINE_SECONDS,
            on_wait=lambda: say(f"{folder.name}: another process is fetching it; waiting"),
        ):
            yield
    except TimeoutError:
        raise ArtifactError(
            f"Another process has been fetching {folder} for {_LOCK_DEADLINE_SECONDS / 60:.0f} minutes",
            fix="end it, then " + REPAIR,
        ) from None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _ignore(_: str) -> None:
    pass


if __name__ == "__main__":
    from jobs.clients.install.artifacts_main import main

    main()
