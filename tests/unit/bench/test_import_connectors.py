"""Figures of the import: every key of the tests' configurations is counted, and the clock's connectors are sound."""

from __future__ import annotations

import json
from pathlib import Path

from bench.import_connectors import FOLDERS, _connectors, count_answers
from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import convert


def test_every_key_of_the_corpus_is_counted() -> None:
    answers = count_answers(FOLDERS["corpus"])
    paths = [path for path in sorted(FOLDERS["corpus"].iterdir()) if ".expect." not in path.name]
    read = [read_sources([str(path)]) for path in paths]

    assert answers.files == len(paths) == 50
    keys = sum(len(one.settings) for sources in read for one in (*sources.connectors, *sources.workers))
    assert answers.headings.total() == keys
    assert answers.outcomes.total() == answers.families.total() == sum(len(sources.connectors) for sources in read)


def test_the_connectors_on_the_clock_are_converted(tmp_path: Path) -> None:
    for number, connector in enumerate(_connectors(8)):
        (tmp_path / f"{number}.json").write_text(json.dumps(connector))

    conversion = convert(read_sources([str(tmp_path)]))

    assert [one.outcome for one in conversion.connectors] == ["converted"] * 8
    assert len({stream["stream"] for _, stream in conversion.streams}) == 8
