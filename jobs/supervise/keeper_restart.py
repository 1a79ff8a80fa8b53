"""What a keeper of the release before imports when its driver has ended; see `jobs.supervise.kept_stream`."""

from __future__ import annotations

import jobs.supervise.kept_stream  # noqa: F401
