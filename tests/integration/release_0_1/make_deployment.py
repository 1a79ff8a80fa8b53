"""Script that made the deployment of release 0.1 in this folder, for the upgrade tests of later releases.

    python -m tests.integration.release_0_1.make_deployment tests/integration/release_0_1

Commit 14022cf1 of frazil 0.1.0 made `deployment.tar.xz`, before any other change. The script runs the commands of the
release that is checked out, and takes some six minutes. `expected.json` has the documents that the release printed of
the deployment, and the offsets of its records.

The settings name another catalog, state folder and ledger than the defaults. The streams are:

- `events`: routed by value into three tables. The last `frazil run` was killed between the commit of the coordinator
  table and those of the other tables, so its pending record exists. Dead letters have several causes. Some were
  replayed with a correction, one was dismissed, others have failed again or are exhausted. An operator's reset of
  offsets passed over some records.
- `payments`: gated by a contract. Snapshots were published, discarded and released. The next one is quarantined, and
  another waits behind it. An operator stopped the driver. Kafka has removed records that were not read, and nobody has
  answered that yet.
- `customers`: changes of Debezium, with a mirror that was merged once. Other changes have landed since, and two dead
  letters wait for a proposed column.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from jobs.system.locks import exclusive
from tests.helpers.topics import create_topic
from tests.helpers.waiting import wait_for
from tests.integration.deployment_maker import KILLED, DeploymentMaker
from tests.integration.deployment_records import Coordinates, Value, offsets_of, produce, several
from tests.integration.release_0_1.contents import (
    CORRECTIONS,
    CUSTOMERS_TOPIC,
    HOME,
    LOCK,
    MERGED,
    NOT_MERGED,
    PROPOSING,
    SETTINGS,
    STATE,
    STREAMS,
    event,
    payment,
    produce_changes,
    produce_payments,
)

MAKER = DeploymentMaker(HOME, "release-0-1-host")
frazil, facts, status = MAKER.frazil, MAKER.facts, MAKER.status


def make_events(address: str, numbers: Iterator[int]) -> list[Coordinates]:
    """Make a routed stream with dead letters and a reset, and kill its run between the commits of its tables.

    Returns:
        Records that the reset passed over.
    """
    create_topic(address, "events", 2)
    bad = [
        *several(event, numbers, 4, type="ODD"),
        *several(event, numbers, 4, amount="12.50"),
        *several(event, numbers, 4, amount="much"),
        *several(event, numbers, 2, id=None),
        *(b'{"id": "e-', None),
    ]
    produce(address, "events", [*several(event, numbers, 60), *several(event, numbers, 4, debug=True), *bad])
    frazil("run", "events")
    produce(address, "events", several(event, numbers, 6))
    ahead = ("reset-offsets", "events", "--to", "latest", "--topic", "events:1", "--reason", "not needed", "--yes")
    reset = facts(*ahead)
    frazil("run", "events")
    everything, amounts = (str(HOME / name) for name in CORRECTIONS)
    odd = facts("replay", "events", "--correction", everything, "--reason", "unrouted", "--offsets", "events:0")
    assert odd["replayed"] == 2, odd
    # Amounts that are numbers as text come back. The others fail, those of partition 1 a second time.
    texts = facts("replay", "events", "--correction", amounts, "--reason", "wrong_type")
    assert (texts["replayed"], texts["failed_again"]) == (4, 4), texts
    again = facts("replay", "events", "--correction", amounts, "--reason", "wrong_type", "--offsets", "events:1")
    assert again["parked"] == 2, again
    frazil("letters", "events", "--reason", "malformed_json", "--dismiss", "was a test")
    frazil("audit", "events")
    bad = [*several(event, numbers, 2, type="ODD"), *several(event, numbers, 2, amount="0.5"), b"[]", None]
    produce(address, "events", [*several(event, numbers, 24), *bad])
    frazil("run", "events", steps="after_anchor_commit=kill", expect=KILLED)
    assert list((STATE / "streams/events").glob("pending-*.json")), "the run left no pending record"
    start, end = (reset[name]["events"]["1"] for name in ("before", "after"))
    return [("events", 1, offset) for offset in range(start, end)]


def make_payments(address: str, numbers: Iterator[int]) -> dict[str, Any]:
    """Make a gated stream with unpublished snapshots, and remove records from its topic.

    Returns:
        Records that were discarded, that are quarantined (`held`), and that Kafka has removed.
    """

    def landed() -> bool:
        now = status("payments")
        return now["lag"] == 0 and now["batch"] is not None

    def position() -> dict[int, int]:
        return {int(at): offset for at, offset in status("payments")["position"]["payments"].items()}

    def land(values: Sequence[Value]) -> list[Coordinates]:
        start = position()
        produce_payments(address, values)
        wait_for(landed, "payments to land")
        return between(start, position())

    def land_by_run(values: Sequence[Value]) -> list[Coordinates]:
        start = position()
        produce_payments(address, values)
        frazil("run", "payments", "--force")
        return between(start, position())

    def between(start: dict[int, int], end: dict[int, int]) -> list[Coordinates]:
        return [("payments", at, offset) for at in end for offset in range(start[at], end[at])]

    create_topic(address, "payments", 3)
    # The first partition is for the records that Kafka removes; it gets no payment that lands.
    produce(address, "payments", [None], partitions=1)
    produce_payments(address, [*several(payment, numbers, 30), *several(payment, numbers, 2, amount=None)])
    frazil("start", "payments", "--reason", "goes live")
    wait_for(landed, "the first payments to land")
    frazil("publish", "payments")
    discarded = land([*several(payment, numbers, 6), *several(payment, numbers, 2, amount=5000)])
    frazil("publish", "payments", expect=1)
    frazil("discard", "payments", "--reason", "a load test")
    land([*several(payment, numbers, 6), *several(payment, numbers, 2, amount=6000)])
    frazil("publish", "payments", expect=1)
    frazil("release", "payments", "--reason", "they are right")
    frazil("stop", "payments", "--reason", "until Monday")

    held = land_by_run([*several(payment, numbers, 9), *several(payment, numbers, 3, amount=7000)])
    frazil("publish", "payments", expect=1)
    land_by_run([*several(payment, numbers, 10), None])
    frazil("audit", "payments")
    produce_payments(address, several(payment, numbers, 4))
    produce(address, "payments", several(payment, numbers, 4), partitions=1)
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.delete_records([TopicPartition("payments", 0, 4)]).values():
        future.result(30)
    frazil("run", "payments", "--force", expect=1)
    return {"discarded": discarded, "held": held, "removed": [("payments", 0, offset) for offset in range(1, 4)]}


def make_customers(address: str) -> None:
    """Make a changelog with a mirror, merge it once, and land further changes."""
    create_topic(address, CUSTOMERS_TOPIC, 2)
    produce_changes(address, MERGED)
    produce(address, CUSTOMERS_TOPIC, [b'{"schema": '], partitions=1)
    frazil("run", "customers")
    frazil("mirror", "run", "customers")
    produce_changes(address, NOT_MERGED)
    frazil("run", "customers")
    produce_changes(address, PROPOSING)
    frazil("run", "customers")
    frazil("audit", "customers")


def reported(address: str) -> dict[str, Any]:
    """Documents that the release's commands print of the deployment."""
    commands = ["validate", "status", f"status {' '.join(STREAMS)}", *(f"letters {stream}" for stream in STREAMS)]
    commands += ["mirror status customers", "publish payments --dry-run", "check payments --history"]
    commands += ["schema diff customers", "at events --partition 0 --offset 3", "replay events --dry-run"]
    commands += ["reset-offsets customers --to earliest", "maintain --plan", "audit customers --full"]
    return {command: facts(*command.split(), expect=None) for command in commands}


def main(target: Path) -> None:
    """Make the deployment and write its archive and the expected documents into the folder `target`."""
    with MAKER.deployment(SETTINGS, STREAMS) as address:
        (HOME / "lake").mkdir()
        for name, correction in CORRECTIONS.items():
            (HOME / name).write_text(yaml.safe_dump(correction))
        numbers = iter(range(1, 10_000))
        make_customers(address)
        payments = make_payments(address, numbers)
        passed = make_events(address, numbers)
        MAKER.forget_boot()
        records = {topic: offsets_of(address, topic) for topic in ("events", "payments", CUSTOMERS_TOPIC)}
        MAKER.archive(target, {"commands": reported(address), "records": records, "passed": passed, **payments})


if __name__ == "__main__":
    with exclusive(LOCK, deadline_seconds=300):
        main(Path(sys.argv[1]))
