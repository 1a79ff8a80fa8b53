"""What a keeper of an earlier release imports when its driver has ended: it begins anew, as a keeper of this release.

Such a keeper was started before an upgrade and has that release's modules in memory. Its order is understood.
"""

from __future__ import annotations

import os
import sys

if sys.orig_argv[1:3] == ["-m", "jobs.supervise.keeper_process"]:
    os.execv(
        sys.executable,
        [sys.executable, "-m", "jobs.streaming.supervision.keeper.keeper_process", *sys.orig_argv[3:]],
    )
