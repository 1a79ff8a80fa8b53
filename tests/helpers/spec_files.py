"""Files of settings and streams that a test writes, and what is wrong with them."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from jobs.config.documents.validation import SpecError
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings
from tests.helpers.problem_places import without_columns


def settings_of(home: Path, text: str) -> Settings:
    """The settings of a deployment with such a file."""
    (home / "frazil.yaml").write_text(text, encoding="utf-8")
    return load_settings(None, home=home)


def settings_problems(home: Path, text: str) -> list[str]:
    """The problems of such settings; no form of the error shows the secret `hunter2`."""
    with pytest.raises(SpecError) as error:
        settings_of(home, text)
    shown = "".join(traceback.format_exception(error.value)) + repr(error.value.__context__)
    assert "hunter2" not in shown
    return [without_columns(problem) for problem in error.value.problems]


def stream_problems(folder: Path, text: str) -> list[str]:
    """The problems of a stream's file, each with its line in front."""
    path = folder / "payments.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as error:
        load_stream(path)
    return [without_columns(problem).split("payments.yaml:")[1] for problem in error.value.problems]
