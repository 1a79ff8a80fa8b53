"""Examples of docs/contracts.md are contracts, and its table of what is left out is complete."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from jobs.spec.contract import Contract
from jobs.spec.expectation_catalogue import OWN, left_out

PAGE = (Path(__file__).parents[3] / "docs" / "contracts.md").read_text(encoding="utf-8")


def test_its_examples_are_contracts() -> None:
    examples = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    contracts = [each["contract"] for each in examples if "contract" in each]
    assert contracts
    assert all(Contract.model_validate(each).expectations for each in contracts)


def test_it_says_what_is_left_out() -> None:
    table = PAGE[PAGE.index("## What GX has") :]
    shown = {name.removeprefix("…").removeprefix("_") for name in re.findall(r"`([^`]+)`", table)}
    missing = [name for name in left_out() if not any(name.endswith(each) for each in shown)]
    assert missing == []
    assert all(name in PAGE for name in OWN)
