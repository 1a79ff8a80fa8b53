"""Refusal of a takeover: its error, and the check that no driver runs the stream."""

from __future__ import annotations

from jobs.base.errors import FrazilError
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.operator.reset import reset_refusal

ONE_COMMIT = "start the connector, wait until it has committed once, stop it, then run this again"


class TakeoverRefusedError(FrazilError):
    """A stream cannot take over from a sink, or not now.

    Safe: The stream's position is as it was. Files of the sink that were committed stay, and are committed once.
    Next: the command that the message names; then `frazil takeover S --from-connect NAME` again
    """


def refuse_running(spec: StreamSpec, settings: Settings, action: str) -> None:
    """Refuse while a driver runs the stream, or may be started.

    Args:
        action: Action that needs the stream stopped, such as `a takeover`.

    Raises:
        TakeoverRefusedError: The message has the command that stops the stream.
    """
    refusal = reset_refusal(spec, settings)
    if refusal is not None:
        message = refusal.message.replace("offsets are reset while it is stopped", f"{action} needs it stopped")
        raise TakeoverRefusedError(message, fix=(refusal.fix or "").replace("reset offsets", action))
