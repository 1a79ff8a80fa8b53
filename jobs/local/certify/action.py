"""Action on a certificate's stream, in its own process that may be killed: `python -m jobs.local.certify.action`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from jobs.config.stream.models import StreamSpec
from jobs.local.certify.workspace import STREAM
from jobs.streaming.supervision.control.stream_control import StreamControl

REASON = "a certificate"
BY = "frazil certify"
_ACTIONS = ("roll", "reset", "drain", "publish", "hold", "release", "merge", "merge-again")


def main() -> int:
    """Carry out one action on a certificate's stream, in a process of its own; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jobs.local.certify.action", description=__doc__)
    parser.add_argument("action", choices=_ACTIONS)
    parser.add_argument("--folder", type=Path, required=True, help="the certificate's folder")
    parser.add_argument("--command", type=json.loads, help="what starts a driver, as a JSON list")
    parser.add_argument("--to", default="", help="where to reset to, as `frazil reset-offsets --to` takes it")
    given = parser.parse_args()
    try:
        if given.action == "roll":
            control = StreamControl(given.folder, given.folder / "frazil.yaml", STREAM, command=given.command)
            print(control.roll(REASON, BY).sentence)
        elif given.action == "reset":
            reset_to(given.folder, given.to)
        elif given.action in ("publish", "hold"):
            print(publish(given.folder, fit=given.action == "publish"))
        elif given.action == "release":
            release(given.folder)
        elif given.action.startswith("merge"):
            from jobs.local.certify.merge_action import merge

            print(merge(*_stream(given.folder), again=given.action == "merge-again"))
        else:
            _drain(given.folder)
    except FrazilError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


def reset_to(folder: Path, to: str) -> None:
    """Action `reset`: move the certificate's stopped stream to other offsets.

    Raises:
        FrazilError: The reset failed.
    """
    from jobs.clients.kafka.metadata import KafkaLog
    from jobs.streaming.operator.reset import reset
    from jobs.streaming.operator.reset_request import reset_request

    spec, settings = _stream(folder)
    reset(spec, settings, lambda: KafkaLog(settings.kafka), reset_request(to), BY, REASON)


def publish(folder: Path, *, fit: bool) -> str:
    """Publish a write-audit-publish stream, with a contract that passes or fails everything, and return the outcome.

    Raises:
        FrazilError: The publication failed.
    """
    from jobs.quality.publishing.gate import Verdict
    from jobs.quality.publishing.gated import publish_if_fit

    verdict = Verdict(fit, () if fit else (REASON,), f"fit: {fit}")
    spec, settings = _stream(folder)
    with connect_catalog(settings) as catalog:
        return publish_if_fit(spec, settings, catalog, BY, lambda _: verdict, verdict.judged_by).became


def release(folder: Path) -> None:
    """Action of an operator who publishes the quarantined rows.

    Raises:
        FrazilError: No rows are quarantined.
    """
    from jobs.quality.publishing.gated import release as release_held

    spec, settings = _stream(folder)
    with connect_catalog(settings) as catalog:
        release_held(spec, settings, catalog, BY, REASON)


def _stream(folder: Path) -> tuple[StreamSpec, Settings]:
    return load_stream(folder / "streams" / f"{STREAM}.yaml"), load_settings(None, home=folder)


def _drain(folder: Path) -> None:
    """Take the stream over from its driver without a request, as another host would, and land what waits."""
    from jobs.clients.kafka.metadata import KafkaLog
    from jobs.clients.spark.end import end_spark
    from jobs.clients.spark.session import start_session
    from jobs.streaming.driver.process.drain import drain

    spec, settings = _stream(folder)
    try:
        kafka = KafkaLog(settings.kafka)
        drained = drain(spec, settings, kafka, lambda: start_session(settings, "frazil certify, the other driver"))
        print(f"epoch {drained.epoch}: {drained.counts}")
    finally:
        end_spark()


if __name__ == "__main__":
    sys.exit(main())
