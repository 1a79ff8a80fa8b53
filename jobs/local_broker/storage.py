"""Storage of the local broker: formatted once, and never over what somebody produced."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from jobs.local_broker.config import new_cluster_id
from jobs.local_broker.errors import BrokerError, last_kafka_lines

_FORMAT_DEADLINE_SECONDS = 180.0


def cluster_id(folder: Path) -> str | None:
    """Return the id of the cluster whose storage the broker's folder holds, or None before it is formatted."""
    try:
        text = (folder / "data" / "meta.properties").read_text()
    except FileNotFoundError:
        return None
    match = re.search(r"^cluster\.id=(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else None


def format_storage(folder: Path, java: str, classpath: str) -> None:
    """Make the storage of a new cluster as `server.properties` in the folder tells.

    Raises:
        BrokerError: There are topics without the file that names their cluster, or Kafka's tool refused.
    """
    data = folder / "data"
    topics = sorted(each.name for each in data.glob("*-*/") if each.name != "__cluster_metadata-0")
    if topics:
        raise BrokerError(
            f"{data} holds {len(topics)} partitions ({topics[0]}, …), but not meta.properties, which names their"
            " cluster",
            fix=f"put {data / 'meta.properties'} back, or remove {data} with all that was produced",
        )
    # What an interrupted attempt left would be refused by the tool.
    shutil.rmtree(data, ignore_errors=True)
    command = [java, "-XX:TieredStopAtLevel=1", "-cp", classpath, "kafka.tools.StorageTool", "format"]
    command += ["--cluster-id", new_cluster_id(), "--config", "server.properties"]
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_FORMAT_DEADLINE_SECONDS,
            check=False,
            umask=0o077,
        )
    except subprocess.TimeoutExpired:
        raise BrokerError(f"Formatting {data} took more than {_FORMAT_DEADLINE_SECONDS:.0f} s") from None
    if answer.returncode != 0:
        raise BrokerError(f"{data} could not be formatted:\n{last_kafka_lines(answer.stdout + answer.stderr)}")
