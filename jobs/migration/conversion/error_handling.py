"""Blocks `errors` and `restart` of a stream: tolerance, retries, the dead-letter queue, and Strimzi's autoRestart."""

from __future__ import annotations

from datetime import timedelta

from jobs.config.documents.units import format_duration
from jobs.migration.conversion.draft import Draft, Yaml

_QUEUE = "errors.deadletterqueue.topic."


def errors_block(draft: Draft) -> Yaml:
    """Block `errors`. Answers `errors.*`."""
    keys = draft.keys
    tolerance = (keys.get("errors.tolerance") or "none").lower()
    errors: Yaml = {"tolerance": "data" if tolerance == "all" else "none"}
    if tolerance == "all":
        keys.approximated(
            "errors.tolerance",
            "'all' forgave conversion and transforms alone, and a record that did not fit its table stopped the task; "
            "here it is a dead letter",
            "errors.tolerance",
        )
    elif keys.has("errors.tolerance"):
        keys.same("errors.tolerance", "errors.tolerance")
    else:
        draft.default("errors.tolerance", "none", "errors.tolerance", "none")
    if retry := _retry(draft):
        errors["retry"] = retry
    if topic := keys.get(f"{_QUEUE}name"):
        replicas = keys.number(f"{_QUEUE}replication.factor") or 3
        errors["dead_letters"] = {"topic": {"name": topic, "create": True, "replication_factor": replicas}}
        if tolerance == "all":
            keys.same(f"{_QUEUE}name", "errors.dead_letters.topic.name")
        else:
            said = "with tolerance none Connect sent the record that stopped the task; here the stop names it"
            keys.approximated(f"{_QUEUE}name", said, "errors.dead_letters.topic.name")
        keys.same(f"{_QUEUE}replication.factor", "errors.dead_letters.topic.replication_factor")
    else:
        for key in (f"{_QUEUE}name", f"{_QUEUE}replication.factor"):
            if not keys.is_open(key):
                keys.no_effect(key, "a queue without a name is off")
    for key in ("errors.log.enable", "errors.log.include.messages"):
        keys.not_needed(key, "every failed record is in the dead letters")
    keys.not_needed(
        "errors.deadletterqueue.context.headers.enable", "dead letters in the topic always have the headers"
    )
    return errors


def restart_block(draft: Draft) -> Yaml:
    """Block `restart`, of `autoRestart` of a Strimzi resource; empty without one."""
    keys = draft.keys
    enabled = keys.flag("spec.autoRestart.enabled", otherwise=True)
    keys.same("spec.autoRestart.enabled", "restart.max_restarts")
    most = keys.number("spec.autoRestart.maxRestarts")
    if not keys.keys("spec.autoRestart"):
        return {}
    keys.same("spec.autoRestart.maxRestarts", "restart.max_restarts")
    if not enabled:
        return {"max_restarts": 0}
    return {} if most is None else {"max_restarts": most}


def say_state(draft: Draft) -> None:
    """Say that a connector is paused or stopped, and which of its tasks have failed."""
    state = draft.connector.state
    if state in ("paused", "stopped"):
        draft.ask(f"{draft.connector.name} is {state}: leave it stopped after the import")
    for failed in draft.connector.failed:
        draft.note(f"{failed} at the worker")


def _retry(draft: Draft) -> Yaml:
    keys = draft.keys
    found: Yaml = {}
    timeout, delay = keys.number("errors.retry.timeout"), keys.number("errors.retry.delay.max.ms")
    if timeout is not None:
        found["timeout"] = "forever" if timeout < 0 else _duration(timeout)
        said = "of a batch when a service does not answer, not of one record; and no record fails by it"
        keys.approximated("errors.retry.timeout", said, "errors.retry.timeout")
    if delay is not None and delay > 0:
        found["max_delay"] = _duration(delay)
        keys.same("errors.retry.delay.max.ms", "errors.retry.max_delay")
    return found


def _duration(milliseconds: int) -> str:
    return format_duration(timedelta(milliseconds=milliseconds)) if milliseconds else "0s"
