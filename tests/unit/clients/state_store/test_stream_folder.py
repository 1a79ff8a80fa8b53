"""What the folder of a stream remembers of its last query."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.tables.commit.stamp.offsets import TopicPartition, spark_offsets

AT = {TopicPartition("payments", 0): 7, TopicPartition("payments", 1): 12}


def test_how_far_the_last_query_had_planned(tmp_path: Path) -> None:
    folder = StreamFolder.at(tmp_path)
    assert folder.last_planned() == {}
    offsets = folder.new_checkpoint() / "offsets"
    offsets.mkdir(parents=True)
    for batch, more in ((9, 0), (10, 5)):
        position = {partition: at + more for partition, at in AT.items()}
        (offsets / str(batch)).write_text(f"v1\n{{}}\n{spark_offsets(position)}")
    (offsets / ".10.crc").write_bytes(b"crc")
    assert folder.last_planned() == {partition: at + 5 for partition, at in AT.items()}
    # The next query begins with an empty checkpoint, and Kafka is asked.
    folder.new_checkpoint()
    assert folder.last_planned() == {}


@pytest.mark.parametrize("damaged", ["", "v1\n{}\n", "v1\n{}\n[]", "v1\n{}\n-", 'v1\n{}\n{"payments": 1}'])
def test_a_damaged_one_is_no_hint(tmp_path: Path, damaged: str) -> None:
    offsets = tmp_path / "checkpoints" / "a" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text(damaged)
    assert StreamFolder.at(tmp_path).last_planned() == {}
