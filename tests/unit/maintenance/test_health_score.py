"""The score: what costs how much, what is damped, and that more of what is bad never looks better."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.maintenance.measure.health_facts import PartitionFacts, TableFacts
from jobs.maintenance.measure.health_score import WEIGHTS, score
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.measure.text import size_text
from tests.unit.maintenance.metadata_tables import (
    MB,
    NOW,
    partition,
    policy,
    table_of,
)

GOOD = partition(*[128 * MB] * 100)


@pytest.mark.parametrize(
    ("facts", "parts"),
    [
        (table_of(), {}),
        (table_of(partition(MB, MB, MB)), {}),
        (table_of(*[partition(MB, name=str(day)) for day in range(365)]), {}),
        (table_of(GOOD), {}),
        (replace(table_of(GOOD), partitions=None), {}),
        (table_of(partition(*[MB] * 13)), {"small_files": 6}),
        (table_of(partition(*[MB] * 100)), {"small_files": 40}),
        (table_of(*[partition(*[MB] * 100, name=str(day)) for day in range(30)]), {"small_files": 40}),
        (table_of(GOOD, partition(*[MB] * 101, name="new")), {"small_files": 20}),
        (replace(table_of(partition(*[MB] * 100)), partitions=None), {"small_files": 40}),
        (table_of(partition(MB, delete_files=1, equality_deletes=1)), {"deletes": 2}),
        (table_of(partition(*[128 * MB] * 100, delete_files=1, position_deletes=30)), {"deletes": 3}),
        (table_of(partition(*[128 * MB] * 100, delete_files=1, equality_deletes=30)), {"deletes": 9}),
        (table_of(partition(*[128 * MB] * 100, delete_files=500, position_deletes=500)), {"deletes": 30}),
        (table_of(partition(128 * MB, delete_files=5, position_deletes=0)), {"deletes": 15}),
        (table_of(GOOD, snapshots=300), {}),
        (table_of(GOOD, snapshots=600), {"snapshots": 7}),
        (table_of(GOOD, snapshots=43_200, metadata_bytes=60 * MB), {"snapshots": 20}),
        (table_of(GOOD, metadata_bytes=6 * MB), {"snapshots": 3}),
        (table_of(GOOD, manifests=100), {}),
        (table_of(GOOD, manifests=200), {"manifests": 5}),
        (table_of(GOOD, manifests=3_000), {"manifests": 10}),
        (table_of(GOOD, mixed_specs=True), {"manifests": 2}),
    ],
)
def test_what_costs_how_much(facts: TableFacts, parts: dict[str, int]) -> None:
    found = score(facts, policy())
    assert found.parts == dict.fromkeys(WEIGHTS, 0) | parts
    assert found.total == 100 - sum(parts.values())
    assert all(sentence.endswith(".") for sentence in found.sentences.values())


def test_the_worst_is_nought() -> None:
    worst = table_of(
        partition(*[1] * 9_000, delete_files=9_000, equality_deletes=90_000), snapshots=10**6, manifests=10**6
    )
    assert score(replace(worst, metadata_bytes=10**9), policy()).total == 0


def test_what_it_says() -> None:
    history = MaintenanceHistory().done("compact", NOW - timedelta(hours=3), spec_id=0, scope="day=1")
    history = history.done("expire", NOW - timedelta(days=3)).failed("manifests", NOW, "no")
    facts = table_of(partition(*[MB] * 99, 128 * MB, delete_files=2, position_deletes=100), snapshots=1200, manifests=7)
    found = score(replace(facts, metadata_bytes=3 * MB, manifest_bytes=70_000), policy(), history)
    assert found.sentences == {
        "small_files": "99 of 100 data files of 2.3 MiB on average are below 16 MiB; merged, there would be 98 files "
        "fewer; compact was done 3 h ago.",
        "deletes": "2 delete files with 100 positions and 0 equality deletes, 10.0% of the rows.",
        "snapshots": "1,200 snapshots (at most 300), metadata of 3.0 MiB; expire was done 3 days ago.",
        "manifests": "7 manifests (at most 100) of 68 KiB in all.",
    }
    assert (found.small_files, found.small_below) == (99, 16 * MB)
    assert found.hours_since == {"compact": 3.0, "expire": 72.0}


def test_sizes_in_words() -> None:
    assert [size_text(size) for size in (0, 1023, 1536, 16 * MB, 2.34 * 1024 * MB, 5 * 1024**4)] == [
        "0 bytes",
        "1,023 bytes",
        "1.5 KiB",
        "16 MiB",
        "2.3 GiB",
        "5,120 GiB",
    ]


SIZES = st.lists(st.one_of(st.integers(0, 20 * MB), st.integers(0, 200 * MB)), max_size=80)
PARTITIONS = st.lists(
    st.builds(
        lambda sizes, files, positions, equality: partition(
            *sizes, delete_files=files, position_deletes=positions, equality_deletes=equality
        ),
        SIZES,
        st.integers(0, 100),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    max_size=6,
)
COUNTS = st.fixed_dictionaries(
    {
        "snapshots": st.integers(0, 2000),
        "manifests": st.integers(0, 1000),
        "metadata_bytes": st.integers(0, 20 * MB),
        "mixed_specs": st.booleans(),
    }
)
POLICIES = st.builds(
    lambda target, min_files: policy(compact={"target": f"{target}MiB", "min_files": min_files}),
    st.sampled_from([1, 8, 128, 512]),
    st.integers(2, 40),
)


@given(PARTITIONS, POLICIES, st.data())
def test_one_more_small_file_never_raises_it(partitions, chosen, data) -> None:
    small = data.draw(st.integers(0, int(chosen.compact.small) - 1))
    at = data.draw(st.integers(0, len(partitions)))
    more = [*partitions[:at], _with(partitions[at], small) if at < len(partitions) else partition(small)]
    more += partitions[at + 1 :]
    before, after = (score(table_of(*each), chosen) for each in (partitions, more))
    assert after.parts["small_files"] >= before.parts["small_files"]


def _with(facts: PartitionFacts, size: int) -> PartitionFacts:
    return replace(facts, sizes=tuple(sorted((*facts.sizes, size))))


@given(
    PARTITIONS.filter(bool),
    POLICIES,
    st.sampled_from(["delete_files", "position_deletes", "equality_deletes"]),
    st.integers(1, 500),
)
def test_more_deletes_never_raise_it(partitions, chosen, name, more) -> None:
    changed = [replace(partitions[0], **{name: getattr(partitions[0], name) + more}), *partitions[1:]]
    assert score(table_of(*changed), chosen).total <= score(table_of(*partitions), chosen).total


@given(COUNTS, st.sampled_from(["snapshots", "manifests", "metadata_bytes"]), st.integers(1, 10**7))
def test_more_metadata_never_raises_it(counts, name, more) -> None:
    worse = counts | {name: counts[name] + more}
    assert score(table_of(GOOD, **worse), policy()).total <= score(table_of(GOOD, **counts), policy()).total


@given(PARTITIONS, POLICIES)
def test_what_compaction_leaves_is_no_worse(partitions, chosen) -> None:
    target, small = chosen.compact.target, chosen.compact.small
    merged = [_merged(each, target, small) for each in partitions]
    before, after = (score(table_of(*each), chosen) for each in (partitions, merged))
    assert after.parts["small_files"] <= before.parts["small_files"]


def _merged(facts: PartitionFacts, target: int, small: float) -> PartitionFacts:
    smalls = facts.smaller(small)
    whole, rest = divmod(sum(smalls), target)
    made = [target] * whole + ([rest] if rest else [])
    return replace(facts, sizes=tuple(sorted((*facts.sizes[len(smalls) :], *made))))
