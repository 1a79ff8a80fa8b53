"""Measurement of branches: which files each keeps that main's head has not, from the manifests that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.commit.branch import branches
from jobs.commit.lineage import ancestors
from jobs.commit.publications import published_through
from jobs.commit.stamp_history import streams_on_branch
from jobs.commit.stamps import SUMMARY_KEY, Stamp
from jobs.maintain.health_facts import BranchFacts
from jobs.maintain.manifest_reader import NamedFile, named_files
from jobs.publish.interval import PART_MARK, UnpublishableError, branch_begin


def measure_branches(metadata: TableMetadata, io: FileIO, main: Sequence[ManifestFile]) -> tuple[BranchFacts, ...]:
    """Measure each branch other than main.

    Args:
        metadata: The table's own, not as a branch has it.
        io: Reads the manifests.
        main: The manifests of main's head.

    Raises:
        FileNotFoundError: A manifest is gone: snapshots expire at this moment.
    """
    found: list[BranchFacts] = []
    of_main: set[str] | None = None
    for name in sorted(branches(metadata)):
        head = metadata.snapshot_by_id(metadata.refs[name].snapshot_id)
        if name == MAIN_BRANCH or head is None:
            continue
        manifests = head.manifests(io)
        # What both name needs not be read.
        shared = {each.manifest_path for each in main} & {each.manifest_path for each in manifests}
        own = [each for each in manifests if each.manifest_path not in shared]
        if own and of_main is None:
            of_main = {file.path for file in _files(main, io)}
        lacking = [file for file in _files(own, io) if file.path not in (of_main or set())]
        had = _known_to_main(metadata, name)
        replaced = [file for file in lacking if had(file)]
        size, replaced_size = (sum(file.size for file in each) for each in (lacking, replaced))
        summary = head.summary.additional_properties if head.summary else {}
        total, total_size = (int(summary.get(key, 0)) for key in ("total-data-files", "total-files-size"))
        more = len(lacking) - len(replaced)
        found.append(BranchFacts(name, total, total_size, len(replaced), replaced_size, more, size - replaced_size))
    return tuple(found)


def _files(manifests: Iterable[ManifestFile], io: FileIO) -> Iterable[NamedFile]:
    for manifest in manifests:
        if manifest.content == ManifestContent.DATA:
            yield from named_files(io, manifest)


def _known_to_main(metadata: TableMetadata, branch: str) -> Callable[[NamedFile], bool]:
    """As `_had_by_main`; a stamp that cannot be read, of another version, is told where snapshots expire."""
    try:
        return _had_by_main(metadata, branch)
    except (ValueError, KeyError, TypeError):
        return lambda file: False


def _had_by_main(metadata: TableMetadata, branch: str) -> Callable[[NamedFile], bool]:
    """Whether main has had a file of a branch, by what it was given of the stream whose snapshot added it."""
    try:
        begin = branch_begin(metadata, branch)
    except UnpublishableError:
        begin = 0
    streams = {each.partition(PART_MARK)[0] for each in streams_on_branch(metadata, branch)}
    stands = {each: max(published_through(metadata, each, branch) or 0, begin) for each in streams}
    whose: dict[int, str] = {}
    for each in ancestors(metadata, metadata.refs[branch].snapshot_id):
        text = each.summary.additional_properties.get(SUMMARY_KEY) if each.summary else None
        if text:
            whose[each.snapshot_id] = Stamp.from_json(text).stream.partition(PART_MARK)[0]
    furthest = max(stands.values(), default=begin)
    return lambda file: file.sequence <= stands.get(whose.get(file.snapshot_id or -1, ""), furthest)
