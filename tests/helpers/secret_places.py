"""Places in which a secret could be found: arguments of processes while they run, and bytes that are left."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql


def shown(secrets: Mapping[str, str], content: bytes) -> set[str]:
    """The names of the secrets that stand in it, as they are or within a URI."""
    return {name for name, value in secrets.items() if value.encode() in content}


@contextlib.contextmanager
def watched_arguments(secrets: Mapping[str, str]) -> Iterator[set[tuple[str, str]]]:
    """Looks at the arguments of every process of this machine, again and again: the secrets found, with the program."""
    found: set[tuple[str, str]] = set()
    enough = threading.Event()

    def look() -> None:
        while not enough.wait(0.1):
            for arguments in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    content = arguments.read_bytes()
                    found.update((name, content.decode(errors="replace")[:80]) for name in shown(secrets, content))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        enough.set()
        thread.join()


def in_files(secrets: Mapping[str, str], folder: Path) -> dict[str, set[str]]:
    """The files below a folder that hold a secret, with its names."""
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and (names := shown(secrets, path.read_bytes())):
                found[str(path.relative_to(folder))] = names
    return found


def in_database(secrets: Mapping[str, str], url: str, password: str) -> dict[str, set[str]]:
    """The tables of a database that hold a secret, with its names; a table without rows is none of them."""
    found: dict[str, set[str]] = {}
    with psycopg.connect(url, password=password) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert tables
        for (table,) in tables:
            rows: list[Any] = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))).fetchall()
            values = [each for row in rows for each in row]
            texts = [bytes(v) if isinstance(v, (bytes, memoryview)) else str(v).encode() for v in values]
            if names := shown(secrets, b"\n".join(texts)):
                found[table] = names
    return found


def in_bucket(secrets: Mapping[str, str], client: Any, bucket: str, prefix: str) -> tuple[int, dict[str, set[str]]]:
    """Number of objects below a prefix, and the names of the secrets in each object with any."""
    count, found = 0, dict[str, set[str]]()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for each in page.get("Contents", ()):
            count += 1
            if names := shown(secrets, client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()):
                found[each["Key"]] = names
    return count, found
