"""Simulated maintenance: each step of a plan leaves in a table's metadata what Iceberg's procedure leaves.

- compact: the files that the step names are replaced by as many as Iceberg would write, without anybody reading a row.
- manifests: PyIceberg's own merging of manifests, told to merge however few they are.
- expire: the same cut as the product makes; what no snapshot that is left can reach is deleted.
- metadata: the properties are set. Orphans: there are none, so nothing is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate, SetPropertiesUpdate, TableUpdate

from bench.time_lapse import TimeLapse
from jobs.config.services.maintenance_policy import Policy
from jobs.maintenance.measure.health_measurement import measure_health
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.plan.plan import Plan, Step, files_written
from jobs.maintenance.plan.plan_expiry import may_be_due
from jobs.maintenance.plan.planner import plan
from jobs.maintenance.plan.snapshot_retention import expiry_cutoff
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append, ReplaceFiles

_MERGE_FROM = "commit.manifest.min-count-to-merge"
_COMMIT_OF_MANIFEST = re.compile(r"(.{36})-m\d+\.avro")
_COMMIT_OF_LIST = re.compile(r"snap-\d+-\d+-(.{36})\.avro")
_STEP_TAKES = timedelta(seconds=1)


class Maintenance:
    """The hourly run for one table.

    Args:
        lapse: The simulated world.
        policy: Policy of a stream whose file has no block about maintenance.

    Attributes:
        history: The maintenance that was done.
        rewritten: Bytes of data files that Spark would have rewritten.
    """

    def __init__(self, lapse: TimeLapse, policy: Policy) -> None:
        self.history: MaintenanceHistory = MaintenanceHistory()
        self.rewritten: int = 0
        self._lapse: TimeLapse = lapse
        self._policy: Policy = policy
        self._expired: set[str] = set()

    def run(self) -> Plan:
        """Measure, plan, and do what is planned, each step a second after the other."""
        lapse = self._lapse
        facts = measure_health(lapse.table, self._policy, lapse.now)
        expire, due = self._policy.expire, may_be_due(facts, self._policy.expire, lapse.now)
        cutoff = expiry_cutoff(lapse.table.metadata, expire, (), lapse.now, "lapse") if due else None
        planned = plan(facts, self._policy, self.history, lapse.now, cutoff=cutoff)
        if not planned.steps:
            return planned
        gone: Sequence[Snapshot] = ()
        before = lapse.table.metadata.snapshots
        with lapse.collecting() as collected:
            self._compact([step for step in planned.steps if step.action == "compact"])
            for step in planned.steps:
                lapse.catalog.now += _STEP_TAKES
                match step.action:
                    case "manifests":
                        self._manifests()
                    case "expire":
                        gone = self._expire(before, collected)
                    case "metadata":
                        collected.append(SetPropertiesUpdate(updates={k: str(v) for k, v in step.detail.items()}))
                    case "compact" | "position_deletes" | "orphans":
                        pass
                spec_id = step.partition.spec_id if step.partition else None
                self.history = self.history.done(step.action, lapse.now, spec_id=spec_id, scope=step.scope)
        self._delete_what_nothing_reaches(gone)
        return planned

    def _compact(self, steps: Sequence[Step]) -> None:
        """Compact partitions in one commit, as frazil does with Spark for up to five partitions."""
        lapse = self._lapse
        removed: list[DataFile] = []
        added: list[DataFile] = []
        for step in steps:
            assert step.partition is not None
            day = step.partition.values[0].value
            limit = int(step.detail["min_file_size_bytes"])
            small = [file for file in lapse.files[day].values() if file.file_size_in_bytes < limit]
            size = sum(file.file_size_in_bytes for file in small)
            count = files_written(size, int(step.detail["target_file_size_bytes"]), limit)
            removed += small
            added += [lapse.file(size // count, day) for _ in range(count)]
            self.rewritten += size
        if steps:
            lapse.catalog.replacing = True
            commit_once(lapse.table, ReplaceFiles(removed, added), summary={}, properties={})
            lapse.catalog.replacing = False
            lapse.replace(removed, added)

    def _manifests(self) -> None:
        table = self._lapse.table
        properties = dict(table.metadata.properties)
        table.metadata = table.metadata.model_copy(update={"properties": {**properties, _MERGE_FROM: "2"}})
        self._lapse.catalog.replacing = True
        commit_once(table, Append(), summary={}, properties={})
        self._lapse.catalog.replacing = False
        table.metadata = table.metadata.model_copy(update={"properties": properties})

    def _expire(self, before: Sequence[Snapshot], collected: list[TableUpdate]) -> Sequence[Snapshot]:
        lapse = self._lapse
        # The table in hand knows its head alone; what this run has added is among what it collected.
        added = [update.snapshot for update in collected if isinstance(update, AddSnapshotUpdate)]
        snapshots = [*before, *added]
        whole = lapse.table.metadata.model_copy(update={"snapshots": snapshots})
        found = expiry_cutoff(whole, self._policy.expire, (), lapse.now, "lapse")
        gone = sorted(snapshots, key=lambda each: each.sequence_number or 0)[: found.going]
        assert all(datetime.fromtimestamp(each.timestamp_ms / 1000, UTC) < found.older_than for each in gone)
        if gone:
            collected.append(
                RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [each.snapshot_id for each in gone]})
            )
        return gone

    def _delete_what_nothing_reaches(self, gone: Sequence[Snapshot]) -> None:
        """Nobody branches here, so a manifest that the oldest snapshot lacks, and an older commit wrote, is in none."""
        for snapshot in gone:
            path = _path(snapshot.manifest_list)
            match = _COMMIT_OF_LIST.fullmatch(path.name)
            assert match is not None
            self._expired.add(match[1])
            path.unlink()
        table = self._lapse.table
        oldest = min(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)
        needed = {_path(manifest.manifest_path) for manifest in oldest.manifests(table.io)}
        for path in _path(f"{table.location()}/metadata").iterdir():
            match = _COMMIT_OF_MANIFEST.fullmatch(path.name)
            if match is not None and match[1] in self._expired and path not in needed:
                path.unlink()


def _path(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))
