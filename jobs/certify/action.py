"""An action on a certificate's stream, in a process of its own that may be killed: `python -m jobs.certify.action`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from jobs.certify.workspace import STREAM
from jobs.errors import FrazilError
from jobs.spec.loading import load_stream
from jobs.spec.settings import load_settings
from jobs.supervise.stream_control import StreamControl

REASON = "a certificate"
BY = "frazil certify"


def main() -> int:
    """Carry out one action on a certificate's stream, in a process of its own; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jobs.certify.action", description=__doc__)
    parser.add_argument("action", choices=["roll", "reset", "drain"])
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
        else:
            _drain(given.folder)
    except FrazilError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    return 0


def reset_to(folder: Path, to: str) -> None:
    """The action of a reset: move the certificate's stopped stream to other offsets.

    Raises:
        FrazilError: It cannot be done.
    """
    from jobs.kafka.metadata import KafkaLog
    from jobs.operator.reset import reset
    from jobs.operator.reset_request import reset_request

    spec = load_stream(folder / "streams" / f"{STREAM}.yaml")
    settings = load_settings(None, home=folder)
    reset(spec, settings, lambda: KafkaLog(settings.kafka), reset_request(to), BY, REASON)


def _drain(folder: Path) -> None:
    """Take the stream over without asking whoever drives it, as another host would, and land what waits."""
    from jobs.kafka.metadata import KafkaLog
    from jobs.spark.end import end_spark
    from jobs.spark.session import start_session
    from jobs.stream.drain import drain

    spec = load_stream(folder / "streams" / f"{STREAM}.yaml")
    settings = load_settings(None, home=folder)
    try:
        kafka = KafkaLog(settings.kafka)
        drained = drain(spec, settings, kafka, lambda: start_session(settings, "frazil certify, the other driver"))
        print(f"epoch {drained.epoch}: {drained.counts}")
    finally:
        end_spark()


if __name__ == "__main__":
    sys.exit(main())
