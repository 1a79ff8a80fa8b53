"""Names of the launchers of drivers, apart from the settings: a keeper imports them, which has a few megabytes."""

from __future__ import annotations

from typing import Literal, TypeAlias

LauncherName: TypeAlias = Literal["local", "spark_submit", "kubernetes"]
LOCAL: LauncherName = "local"
