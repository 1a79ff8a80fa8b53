"""Fifty configurations of Kafka Connect and twelve worked examples, each with what has to come of it.

`corpus/NN-name.json|yaml|properties` is what is imported, `corpus/NN-name.expect.yaml` what has to come of it:
`outcome` of all connectors together; subsets of `streams` and `settings`; `secrets`; keys by heading, as `KEY` or
`CONNECTOR.KEY`; regular expressions of `questions` and `notes`; and `takeover`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.documents.connect_keys import KeyClass
from jobs.migration.connectors.reading import read_sources
from jobs.migration.conversion.conversion import Conversion, convert
from jobs.migration.files.plan import UNFINISHED, ImportPlan, plan_import, report_text, write_import
from jobs.migration.report.markdown import report_markdown
from tests.helpers.import_expectations import differences, stream_differences

CORPUS = Path(__file__).with_name("corpus")
EXAMPLES = Path(__file__).with_name("examples")
CASES = [
    path for folder in (CORPUS, EXAMPLES) for path in sorted(folder.iterdir()) if not path.name.endswith(".expect.yaml")
]
# Every secret of the corpus begins so.
SECRET = re.compile(r"plain-[\w-]+")


@cache
def converted(case: Path) -> Conversion:
    return convert(read_sources([str(case)]))


def expected(case: Path) -> dict[str, Any]:
    return yaml.safe_load(case.with_name(f"{case.stem}.expect.yaml").read_text(encoding="utf-8"))


def outputs(plan: ImportPlan) -> dict[str, str]:
    texts = {file.path: file.text for file in plan.files}
    return texts | {"md": report_markdown(plan.document), "json": report_text(plan.document)}


def outcome(conversion: Conversion) -> str:
    found = {one.outcome for one in conversion.connectors}
    if "refused" in found:
        return "mixed" if len(found) > 1 else "refused"
    return "decide" if "decide" in found else "converted"


def test_every_case_has_an_expectation() -> None:
    assert len(CASES) == 62
    assert all(expected(case) for case in CASES)
    assert (len(list(CORPUS.iterdir())), len(list(EXAMPLES.iterdir()))) == (100, 24)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_what_comes_of_a_configuration(case: Path) -> None:
    conversion, wanted = converted(case), expected(case)
    known = {"outcome", "streams", "settings", "secrets", "questions", "notes", "takeover", *map(str, KeyClass)}
    assert wanted.keys() <= known

    found = [] if wanted.get("outcome") in (None, outcome(conversion)) else [f"outcome: {outcome(conversion)}"]
    found += stream_differences(wanted.get("streams", []), [stream for _, stream in conversion.streams]) * (
        "streams" in wanted
    )
    found += differences(wanted.get("settings", {}), conversion.settings, "settings")
    found += heading_differences(conversion, wanted)
    found += secret_differences(conversion, wanted.get("secrets", []))
    asked = [question.text for one in conversion.connectors for question in one.questions]
    noted = [note for one in conversion.connectors for note in one.notes]
    found += [
        f"no question {text}" for text in wanted.get("questions", ()) if not any(re.search(text, q) for q in asked)
    ]
    found += [f"no note {text}" for text in wanted.get("notes", ()) if not any(re.search(text, n) for n in noted)]
    found += takeover_differences(conversion, wanted.get("takeover"))
    assert found == []


def heading_differences(conversion: Conversion, wanted: dict[str, Any]) -> list[str]:
    headings: dict[str, str] = {}
    for one in conversion.connectors:
        for answer in one.answers:
            headings[f"{one.connector.name}.{answer.key}"] = headings[answer.key] = str(answer.heading)
    for worker in conversion.workers:
        headings |= {answer.key: str(answer.heading) for answer in worker.answers}
    return [
        f"{key} is {headings.get(key)}, not {heading}"
        for heading in map(str, KeyClass)
        for key in wanted.get(heading, ())
        if headings.get(key) != heading
    ]


def secret_differences(conversion: Conversion, wanted: list[dict[str, str]]) -> list[str]:
    places = {(secret.key, secret.at) for secret in conversion.secrets}
    return [f"no secret {one}" for one in wanted if "at" in one and (one["key"], one["at"]) not in places]


def takeover_differences(conversion: Conversion, wanted: dict[str, Any] | None) -> list[str]:
    takeovers = {one.connector.name: one.takeover for one in conversion.connectors if one.takeover is not None}
    if wanted is None:
        return []
    groups = wanted.get("groups") or {next(iter(takeovers), "none"): wanted["group"]}
    found = [f"{name}: {takeovers.get(name)}" for name, group in groups.items() if _group(takeovers, name) != group]
    topics = {takeover.control_topic for takeover in takeovers.values()}
    return found + ([] if wanted.get("control_topic") in topics or not topics else [f"control topics {topics}"])


def _group(takeovers: dict[str, Any], name: str) -> str | None:
    return takeovers[name].group if name in takeovers else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_every_key_has_one_answer(case: Path) -> None:
    for one in converted(case).connectors:
        assert sorted(answer.key for answer in one.answers) == sorted(one.connector.settings)
    for worker in converted(case).workers:
        assert sorted(answer.key for answer in worker.answers) == sorted(worker.worker.settings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_output_is_valid_stable_and_without_secrets(case: Path, tmp_path: Path) -> None:
    plan = plan_import(converted(case), tmp_path)
    assert [file.path for file in plan.files if file.path.endswith(UNFINISHED)] == []

    texts = outputs(plan)
    secrets = set(SECRET.findall(case.read_text(encoding="utf-8")))
    assert {secret for secret in secrets if any(secret in text for text in texts.values())} == set()

    assert outputs(plan_import(convert(read_sources([str(case)])), tmp_path)) == texts

    write_import(plan, replace_edited=False)
    again = plan_import(converted(case), tmp_path)
    assert {file.action for file in again.files} <= {"unchanged"}
    assert write_import(again, replace_edited=False) == []
