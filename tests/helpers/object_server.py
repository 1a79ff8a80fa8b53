"""S3 server for tests: SeaweedFS as one process on free ports of the loopback, ended by its pid."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.base.system.ports import free_ports
from jobs.base.system.processes import start_time, stop_process
from tests.helpers.session_keys import IAM_CONFIG
from tests.helpers.waiting import wait_for

BUCKET = "lake"
KEY, SECRET = "frazil-tests", "a-secret-of-the-tests"


@dataclass(frozen=True)
class ObjectServer:
    """Address of the server, with `KEY` and `SECRET` as credentials and the bucket `BUCKET`.

    Attributes:
        endpoint: URL of the server, such as `http://127.0.0.1:8333`.
        pid: Id of its process, which a test may stop and continue.
    """

    endpoint: str
    pid: int

    @property
    def port(self) -> int:
        """The port of S3."""
        return int(self.endpoint.rpartition(":")[2])


@contextlib.contextmanager
def object_server(folder: Path) -> Iterator[ObjectServer]:
    """Run SeaweedFS with its data in a folder until the end; it takes the keys of `session_keys` as well."""
    folder.mkdir(parents=True, exist_ok=True)
    iam = folder / "iam.json"
    iam.write_text(json.dumps(IAM_CONFIG))
    names = ("admin", "filer", "master", "s3", "volume", "webdav")
    ports = free_ports(2 * len(names) + 1)
    arguments: list[str] = []
    for name, port, grpc in zip(names, ports[::2], ports[1::2], strict=False):
        arguments.append(f"-{name}.port={port}")
        if name != "webdav":
            arguments.append(f"-{name}.port.grpc={grpc}")
    endpoint = f"http://127.0.0.1:{ports[2 * names.index('s3')]}"
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("weed")),
                "mini",
                f"-dir={folder}",
                "-ip=127.0.0.1",
                "-ip.bind=127.0.0.1",
                "-master.telemetry=false",
                "-admin.ui=false",
                "-webdav=false",
                "-s3.port.iceberg=0",
                "-s3.autoCreateBucket=false",
                "-s3.port.lance=0",
                f"-bucket={BUCKET}",
                f"-s3.iam.config={iam}",
                *arguments,
            ],
            env={**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
    started = start_time(process.pid)
    try:
        wait_for(lambda: process.poll() is not None or _answers(endpoint), "SeaweedFS to answer", 60)
        assert process.poll() is None, (folder / "weed.log").read_text()[-2000:]
        yield ObjectServer(endpoint, process.pid)
    finally:
        stop_process(process.pid, started, 5.0)
        process.wait()


def s3_client(server: ObjectServer | str) -> Any:
    """A client with the server's keys, to be closed; of a server, or of its endpoint."""
    # Imported here: only tests with this server need it.
    from botocore.config import Config
    from botocore.session import get_session

    return get_session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=server if isinstance(server, str) else server.endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 1}),
    )


def _answers(endpoint: str) -> bool:
    """Whether the bucket can be written, which is some time after the port is open."""
    from botocore.exceptions import BotoCoreError, ClientError

    client = s3_client(endpoint)
    try:
        client.put_object(Bucket=BUCKET, Key="ready", Body=b"")
        client.delete_object(Bucket=BUCKET, Key="ready")
    except (BotoCoreError, ClientError):
        return False
    finally:
        client.close()
    return True


def warehouse_properties(server: ObjectServer, folder: str) -> dict[str, str]:
    """Properties of a REST catalog's server for a warehouse in a folder of the bucket, by Iceberg's names."""
    return {
        "warehouse": f"s3://{BUCKET}/{folder}",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": server.endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": KEY,
        "s3.secret-access-key": SECRET,
        "client.region": "us-east-1",
        "http-client.type": "urlconnection",
        "s3.chunked-encoding-enabled": "false",
    }
