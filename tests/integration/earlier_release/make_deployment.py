"""Script that makes a deployment with the release that is checked out, and packs it for the tests of later ones.

    python -m tests.integration.earlier_release.make_deployment tests/integration/earlier_release

It writes `deployment.tar.xz`, the deployment as it was left, and `expected.json`, what the release said of it and which
records its topics hold. The deployment is made in `HOME`, as its tables name their files by absolute paths, and has to
be unpacked there. All that touches it are the release's own commands, run as an operator would, so the script serves
later releases as it is: run it with the checkout of a release, before anything else is changed there. It takes some
five minutes.

What is in it:

- `orders`: driven by a driver over several batches, with dead letters, a dead-letter topic and records of aborted
  transactions; its second driver was killed between the commits of its table and of its dead letters. A return of a
  letter to a topic was killed once Kafka had it.
- `refunds`: drained; reset past some records; letters replayed with a correction, failed again, and dismissed; its
  tables compacted and expired. A replay was killed once the table had its rows.
- `clicks`: a topic for each day, of which one was read and deleted; stopped by an operator. The queue of a Connect sink
  was taken, and a second time killed once the table had its rows.

Left out are logs, Spark's own files and Dagster's storage, on none of which a stream depends, and the identity of the
host: clocks and processes of another host and boot are what whoever unpacks it meets in any case.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.base.system.locks import exclusive
from tests.helpers.topics import create_topic, delete_topic
from tests.helpers.waiting import wait_for
from tests.integration.deployment_maker import KILLED, DeploymentMaker, session_members
from tests.integration.deployment_records import offsets_of, produce, several
from tests.integration.earlier_release.contents import (
    DAYS,
    HOME,
    LETTERS,
    LOCK,
    QUEUE,
    RETURNS,
    SETTINGS,
    STREAMS,
    click,
    order,
    produce_letters,
    refund,
)

MAKER = DeploymentMaker(HOME, "earlier-host")
frazil, facts, status = MAKER.frazil, MAKER.facts, MAKER.status


def make_orders(address: str, numbers: Iterator[int]) -> None:
    """A stream whose driver lands several batches and is killed within one."""

    def all_landed() -> bool:
        now = status("orders")
        return now["lag"] == 0 and now["batch"] is not None

    create_topic(address, "orders", 2)
    bad = [*several(order, numbers, 3, amount=None), b'{"id": "o-', None]
    produce(address, "orders", [*several(order, numbers, 40), *several(order, numbers, 5, debug=True, via="w"), *bad])
    frazil("start", "orders", "--reason", "goes live")
    wait_for(all_landed, "the first records to land")
    produce(address, "orders", several(order, numbers, 20), ending="commit")
    produce(address, "orders", several(order, numbers, 4), ending="abort")
    bad = [*several(order, numbers, 2, amount="much"), {"id": "nobody", "amount": "much"}]
    produce(address, "orders", [*several(order, numbers, 20), *bad])
    wait_for(all_landed, "all records to land")
    frazil("pause", "orders", "--reason", "looking at something")
    frazil("resume", "orders", "--reason", "seen it")
    wait_for(lambda: status("orders")["unpublished_letters"] == 0, "the dead letters in their topic")
    frazil("stop", "orders", "--reason", "a new version")
    # The letter that is not masked goes to another topic; whoever takes it there is killed before the letter knows.
    create_topic(address, RETURNS, 1)
    back = ("replay", "orders", "--offsets", "orders", "--to-topic", RETURNS)
    frazil(*back, steps="return_after_commit=kill", expect=KILLED)

    frazil("start", "orders", "--reason", "the new version", steps="after_anchor_commit=stop")
    wait_for(lambda: status("orders")["state"] in ("waiting", "running"), "the driver to run")
    values = [*several(order, numbers, 30), *several(order, numbers, 3, amount=""), b"[]", None]
    produce(address, "orders", values, ending="commit", headers=[("secret", b"s"), ("trace", b"\x01")])
    folder = HOME / ".frazil/state/streams/orders"
    driver, keeper = (json.loads((folder / f"{name}.json").read_bytes())["pid"] for name in ("heartbeat", "keeper"))
    wait_for(lambda: session_members(driver).get(driver) == "T", "the driver at its step")
    # The keeper first, which would start another one.
    for pid in (keeper, driver, *session_members(driver)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not session_members(driver), "the end of the driver")
    assert list(folder.glob("pending-*.json")), "the driver left no pending record"


def make_refunds(address: str, numbers: Iterator[int]) -> list[tuple[str, int, int, int]]:
    """A stream that is drained, reset, replayed and maintained, and whose last replay is killed.

    Returns:
        Topic, partition, first and next offset of what a reset passed over.
    """
    create_topic(address, "refunds", 2)
    bad = [*several(refund, numbers, 6, color="red"), *several(refund, numbers, 6, at=1793527200000)]
    produce(address, "refunds", [*several(refund, numbers, 50), *bad, b"{", None, b'{"id": 1,'])
    frazil("run", "refunds")
    produce(address, "refunds", several(refund, numbers, 30), ending="commit")
    frazil("run", "refunds")
    produce(address, "refunds", several(refund, numbers, 6))
    ahead = ("reset-offsets", "refunds", "--to", "latest", "--topic", "refunds:1", "--reason", "not needed", "--yes")
    reset = facts(*ahead)
    frazil("run", "refunds")
    fix = HOME / "ignore.yaml"
    fix.write_text("decode: {unknown_fields: ignore}\n")
    corrected = ("replay", "refunds", "--correction", str(fix))
    assert facts(*corrected, "--reason", "unknown_field", "--offsets", "refunds:0")["replayed"] == 3
    again = facts(*corrected, "--reason", "wrong_type")
    assert (again["selected"], again["replayed"]) == (6, 0)
    frazil("letters", "refunds", "--reason", "malformed_json", "--limit", "1", "--dismiss", "was a test")
    frazil("maintain", "refunds", "--only", "compact", "--only", "expire")
    produce(address, "refunds", several(refund, numbers, 8))
    frazil("run", "refunds")
    frazil("audit", "refunds")
    one = (*corrected, "--reason", "unknown_field", "--offsets", "refunds:1")
    frazil(*one, steps="replay_after_commit=kill", expect=KILLED)
    return [("refunds", 1, reset["before"]["refunds"]["1"], reset["after"]["refunds"]["1"])]


def make_clicks(address: str, numbers: Iterator[int]) -> dict[str, Any]:
    """A stream of a topic a day, and what a Connect sink left of another one; returns what the deleted topic held."""
    for day in DAYS[:2]:
        create_topic(address, day, 1)
        produce(address, day, [*several(click, numbers, 15), {"id": "no time"}], partitions=1)
    frazil("run", "clicks")
    create_topic(address, DAYS[2], 1)
    produce(address, DAYS[2], several(click, numbers, 15), partitions=1)
    gone = {DAYS[0]: offsets_of(address, DAYS[0])}
    delete_topic(address, DAYS[0])
    frazil("run", "clicks")
    create_topic(address, QUEUE, 1)
    produce_letters(address, 0, [*several(click, numbers, 5), {"id": "no time"}])
    frazil("replay", "clicks", "--from-topic", QUEUE)
    produce_letters(address, 6, [*several(click, numbers, 5), {"id": "no time"}])
    frazil("replay", "clicks", "--from-topic", QUEUE, steps="after_anchor_commit=kill", expect=KILLED)
    frazil("stop", "clicks", "--reason", "until Monday")
    return gone


def said_of_it() -> dict[str, Any]:
    """What the release's commands say of the deployment."""
    commands = ("validate", "status", f"status {' '.join(STREAMS)}", *(f"letters {stream}" for stream in STREAMS))
    commands += ("replay refunds --dry-run", "reset-offsets refunds --to earliest", "maintain --plan")
    return {each: facts(*each.split()) for each in (*commands, "audit refunds --full")}


def main(target: Path) -> None:
    """Make the deployment, and write both files into `target`."""
    with MAKER.deployment(SETTINGS, STREAMS) as address:
        numbers = iter(range(1, 10_000))
        make_orders(address, numbers)
        passed = make_refunds(address, numbers)
        gone = make_clicks(address, numbers)
        MAKER.forget_boot()
        topics = ("orders", "refunds", *DAYS[1:], QUEUE, RETURNS, LETTERS)
        records = {topic: offsets_of(address, topic) for topic in topics}
        MAKER.archive(target, {"commands": said_of_it(), "records": records, "gone": gone, "passed": passed})


if __name__ == "__main__":
    with exclusive(LOCK, deadline_seconds=300):
        main(Path(sys.argv[1]))
