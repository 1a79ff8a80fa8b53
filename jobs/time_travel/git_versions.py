"""Git versions of a stream's file: the commit in which it had the hashes that a stamp carries.

Git is asked for nothing but its log and its blobs. Of the streams' folder every version of every file is looked at,
since a file may have had another name; each only once, newest first, in a bounded number of commits.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from jobs.spec.generation import generation
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.spec.yaml_document import YamlUnreadable, parse_yaml

MOST_COMMITS = 1_000
"""So many commits that touch the streams' folder are looked through at most."""
_SECONDS = 60
_MARK = "\x01"


@dataclass(frozen=True, slots=True)
class GitVersion:
    """A version of the stream's file.

    Attributes:
        commit: The newest that made it so.
        path: Of the file, from the top of the repository.
        exact: Whether the generation is the same as well, and not only what makes the rows.
        repository: The top of the repository.
    """

    commit: str
    at: datetime
    subject: str
    path: str
    text: str
    exact: bool
    repository: Path

    @property
    def command(self) -> str:
        """What shows it."""
        return f"git -C {self.repository} show {self.commit[:12]}:{self.path}"


@dataclass(frozen=True, slots=True)
class GitSearch:
    """What came of a search.

    Attributes:
        found: None: no version has the hash.
        said: What was looked through, or why nothing was.
    """

    found: GitVersion | None
    said: str


@dataclass(frozen=True, slots=True)
class _Change:
    commit: str
    at: datetime
    subject: str
    blob: str
    path: str


class _NoAnswer(Exception):
    """Git is not installed, the folder is in no repository, or Git refuses."""


def find_git_version(
    folder: Path,
    stream: str,
    config: str,
    generation_then: str,
    settings: Settings,
    *,
    most_commits: int = MOST_COMMITS,
    on_progress: Callable[[str], None] = lambda _: None,
) -> GitSearch:
    """Find the version of a stream's file that has a configuration hash.

    Args:
        folder: The streams'.
        config: The hash.
        generation_then: Of the whole configuration; empty if it is not known. The version that has it as well is
            preferred, which only one under the settings of today can.
        on_progress: Told how far the search has come.
    """
    seen, unread, commits, newest = set[str](), 0, set[str](), None
    try:
        top = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
        total, changes = _changes(folder, most_commits)
        for change in changes:
            if change.commit not in commits:
                commits.add(change.commit)
                on_progress(f"{len(commits):,} of {total:,} commits, {len(seen):,} versions")
            if change.blob in seen:
                continue
            seen.add(change.blob)
            text = _git(top, "cat-file", "blob", change.blob)
            if stream not in text:
                continue
            spec = _spec(text, folder)
            if spec is None:
                unread += 1
            elif spec.stream == stream and spec.config_hash == config:
                exact = generation_then in ("", generation(spec, settings))
                version = GitVersion(change.commit, change.at, change.subject, change.path, text, exact, top)
                if exact:
                    return GitSearch(version, "")
                newest = newest or version
        shallow = _git(top, "rev-parse", "--is-shallow-repository").strip() == "true"
    except _NoAnswer as why:
        return GitSearch(newest, str(why))
    said = f"none of {len(seen):,} versions in {total:,} commits of {folder.name}/ in Git has it"
    if total >= most_commits:
        said += "; older commits were not looked at"
    if shallow:
        said += "; the repository is a shallow clone, which lacks older ones"
    if unread:
        said += f"; {unread:,} of them cannot be read by this version"
    return GitSearch(newest, said)


def _changes(folder: Path, most: int) -> tuple[int, list[_Change]]:
    """How many commits there are, and the versions of the folder's files, newest first."""
    # Of a merge neither side is left out: what it took over is a version of a commit before it.
    log = _git(
        folder, "-c", "core.quotePath=false", "log", f"--max-count={most}", "--raw", "--no-abbrev", "--no-renames",
        "--no-ext-diff", "--no-color", "--no-show-signature", f"--format={_MARK}%H\t%cI\t%s", "--", ".",
    )  # fmt: skip
    commit, at, subject = "", datetime.now(UTC), ""
    commits, found = 0, list[_Change]()
    for line in log.splitlines():
        if line.startswith(_MARK):
            commit, when, subject = line[1:].split("\t", 2)
            at, commits = datetime.fromisoformat(when), commits + 1
        elif line.startswith(":"):
            about, _, path = line.partition("\t")
            blob, status = about.split()[3:5]
            if status != "D" and path.endswith((".yaml", ".yml")):
                found.append(_Change(commit, at, subject, blob, path))
    return commits, found


def _spec(text: str, folder: Path) -> StreamSpec | None:
    """The stream of a file's text; None if this version of frazil does not read it."""
    try:
        document = parse_yaml(text, shown="a version of the file")
        return StreamSpec.model_validate(document.data, context={"base": folder})
    except (YamlUnreadable, ValidationError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), "--no-pager", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise _NoAnswer("Git, which might have it, is not installed") from None
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise _NoAnswer(f"Git, which might have it, did not answer: {type(problem).__name__}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
        raise _NoAnswer(f"Git, which might have it, says: {said[0]}")
    return done.stdout.decode(errors="replace")
