"""The table of alarms: complete for every check and state, with commands that exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import yaml
from click import Command, Context, Group

from assets.dead_letters import LETTER_DESCRIPTIONS
from assets.stream_checks import DESCRIPTIONS
from orchestration.alerts.alarms import ALARM_BY_ID, ALARM_BY_STATE, ALARMS, CHECKS_OF_STATES, Alarm, alarm_of_check
from orchestration.cli.main import main
from orchestration.definitions import build_definitions
from orchestration.reconcile.stream_state import state_word
from resources.deployment import Deployment
from tests.unit.orchestration.deployments import deployment_in

# States in which nobody has to be told of a stream.
CALM = {"running", "waiting", "starting", "stopping", "draining", "idle", "never ran"}


def test_ids_states_and_checks_are_each_in_one_place() -> None:
    ids = [alarm.id for alarm in ALARMS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", each) for each in ids), "names of rules and of files"
    states = [state for alarm in ALARMS for state in alarm.states]
    checks = [check for alarm in ALARMS for check in alarm.checks]
    assert len(set(states)) == len(states)
    assert len(set(checks)) == len(checks)
    assert {other for alarm in ALARMS for other in alarm.hidden_by} <= set(ids)


def test_every_state_of_a_stream_raises_an_alarm_or_is_calm() -> None:
    words = set(re.findall(r"`([a-z ]+)`", inspect.getdoc(state_word) or "")) - {"frazil run"}
    assert words == ALARM_BY_STATE.keys() | CALM


def test_every_check_raises_one_alarm(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    file = home / "streams" / "payments.yaml"
    document = yaml.safe_load(file.read_text())
    document["event_time"] = {"column": "created_at", "closes": "hour"}
    document["contract"] = {
        "expectations": [{"name": "has_id", "expect_column_values_to_not_be_null": {"column": "id"}}]
    }
    file.write_text(yaml.safe_dump(document))
    keys = build_definitions(Deployment.at(home)).resolve_asset_graph().asset_check_keys
    found = {key.name: alarm_of_check(key.name) for key in keys}
    assert {*DESCRIPTIONS, *LETTER_DESCRIPTIONS, "exactly_once", "closed_partitions", "has_id"} <= found.keys()
    assert {name for name, alarm in found.items() if alarm is None} == CHECKS_OF_STATES
    broken = {name for name, alarm in found.items() if alarm is ALARM_BY_ID["contract_broken"]}
    assert broken == {"has_id"}, "a check without an entry would count as an expectation"


@pytest.mark.parametrize("alarm", ALARMS, ids=lambda alarm: alarm.id)
def test_what_an_alarm_tells_is_complete(alarm: Alarm) -> None:
    assert alarm.meaning.endswith(".")
    assert alarm.safe.endswith(".")
    assert alarm.seconds >= 0
    command = alarm.next.format(stream="payments")
    assert "{" not in command
    if command.startswith("frazil "):
        assert _exists(main, command.partition(",")[0].split()[1:]), command


def _exists(command: Command, words: list[str]) -> bool:
    """Whether there is such a command, with such options."""
    if isinstance(command, Group) and words:
        found = command.get_command(Context(command), words[0])
        return found is not None and _exists(found, words[1:])
    options = {name for parameter in command.params for name in parameter.opts}
    return {word for word in words if word.startswith("--")} <= options
