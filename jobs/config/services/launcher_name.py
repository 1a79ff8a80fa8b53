"""Names of the launchers of drivers, in a module that a watchdog of a few megabytes can import."""

from __future__ import annotations

from typing import Literal, TypeAlias

LauncherName: TypeAlias = Literal["local", "spark_submit", "kubernetes"]
LOCAL: LauncherName = "local"
