from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person at a wide terminal: what a test gives as input is what they type."""
    monkeypatch.setattr("orchestration.cli.common.consent.can_ask", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
