"""Git repository of a deployment's folder, with nobody's configuration."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_NOBODY = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
_WHO = ["-c", "user.name=ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]


class GitFolder:
    """A repository with its top at a folder."""

    def __init__(self, top: Path) -> None:
        self.top: Path = top
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.top), *_WHO, *arguments],
            env={**os.environ, **_NOBODY},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, subject: str) -> str:
        """Commit the streams' folder as it is; returns the commit."""
        self.git("add", "-A", "streams")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")
