"""Proof that a sink has stopped: its connector's state, the members of its groups, and open transactions."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobs.migration.connect_worker import ConnectWorker
from jobs.migration.takeover.sink import Sink, connect_group
from jobs.migration.takeover.sink_kafka import SinkKafka
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError

# After a worker is killed, its membership ends after 45 s (session.timeout.ms) and its transactions after 60 s
# (transaction.timeout.ms), which a broker checks every 10 s.
SETTLE_SECONDS = 120.0
_POLL_SECONDS = 0.5

OnWait = Callable[[str], None]


def sink_obstacle(sink: Sink, worker: ConnectWorker | None, kafka: SinkKafka) -> TakeoverRefusedError | None:
    """Why the sink may still commit; None if it cannot.

    Args:
        worker: Worker of the connector; None if none is to be asked.
    """
    return connector_obstacle(sink, worker) or member_obstacle(sink, kafka)


def connector_obstacle(sink: Sink, worker: ConnectWorker | None) -> TakeoverRefusedError | None:
    """The connector's state if it may still commit; None if it is stopped or deleted, or no worker is to be asked."""
    state = worker.state(sink.name) if worker else None
    if state is None or state.stopped:
        return None
    paused = " A paused connector goes on writing the records in its tasks." if state.connector == "PAUSED" else ""
    return TakeoverRefusedError(
        f"connector {sink.name} is {state}, and may still commit.{paused}",
        fix="the same command with --stop-connector; or stop the connector (PUT /connectors/NAME/stop)",
    )


def member_obstacle(sink: Sink, kafka: SinkKafka) -> TakeoverRefusedError | None:
    """The members of the sink's groups; None if there are none."""
    # The coordinator commits to the tables, and is a member of a group of its own.
    # Without the worker's answer the options may name another group than the one in which its tasks are.
    for group in dict.fromkeys((sink.member_group, connect_group(sink.name), sink.coordinator_group)):
        if members := kafka.members(group):
            return TakeoverRefusedError(
                f"group {group} has {members} members: tasks of connector {sink.name} run, or have just ended.",
                fix="stop the connector, then run this again; pausing it is not enough",
            )
    return None


def stop_connector(sink: Sink, worker: ConnectWorker, on_wait: OnWait) -> None:
    """Ask the worker to stop the connector; returns before its tasks have ended."""
    state = worker.state(sink.name)
    if state is not None and not state.stopped:
        on_wait(f"connector {sink.name} to stop")
        worker.stop(sink.name)


def wait_until_stopped(
    sink: Sink, worker: ConnectWorker | None, kafka: SinkKafka, on_wait: OnWait, *, stop_requested: bool
) -> None:
    """Wait until the sink's groups are empty, and no transaction of its workers is open.

    Args:
        on_wait: Called with what is waited for.
        stop_requested: Whether the connector was asked to stop; otherwise a running one is refused at once.

    Raises:
        TakeoverRefusedError: The sink runs, or has not stopped within two minutes.
    """
    topic = sink.control_topic
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        running = connector_obstacle(sink, worker)
        if running is not None and not stop_requested:
            raise running
        obstacle = running or member_obstacle(sink, kafka)
        if obstacle is not None:
            on_wait("the members of the sink's groups to leave")
        else:
            control = kafka.control_log(topic)
            if control is None or not control.undecided:
                return
            obstacle = TakeoverRefusedError(
                f"control topic {topic} has an open transaction, which a killed worker leaves behind.",
                fix="run this again in a minute: Kafka ends it after the worker's transaction.timeout.ms",
            )
            on_wait("Kafka to end the transaction of a worker")
        if time.monotonic() > deadline:
            raise obstacle
        time.sleep(_POLL_SECONDS)
