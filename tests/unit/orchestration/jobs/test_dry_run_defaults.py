"""Defaults of `dry_run`: what cannot be taken back only shows what it would do, all else acts, as in the commands."""

from __future__ import annotations

import dagster as dg
import pytest

from orchestration.jobs.dead_letter_expiry import ExpireConfig
from orchestration.jobs.discard import DiscardConfig
from orchestration.jobs.maintain.ops import MaintainConfig, TablesConfig
from orchestration.jobs.release import ReleaseConfig
from orchestration.jobs.replay import ReplayConfig
from orchestration.jobs.reset import ResetConfig

ASK = (DiscardConfig, ReleaseConfig, ResetConfig)
ACT = (ExpireConfig, MaintainConfig, TablesConfig, ReplayConfig)


@pytest.mark.parametrize("config", [*ASK, *ACT])
def test_what_cannot_be_taken_back_only_shows(config: type[dg.Config]) -> None:
    assert config.model_fields["dry_run"].default is (config in ASK)
