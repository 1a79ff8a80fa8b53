from __future__ import annotations

import threading

import pytest

from orchestration.reconcile.background_query import BackgroundQuery


def test_an_answer_in_time_is_given_and_given_once() -> None:
    asked: list[int] = []
    background = BackgroundQuery()
    for _ in range(2):
        assert background.ask("a", 30, lambda: asked.append(1) or "b") == "b"
    assert len(asked) == 2


def test_an_answer_that_is_late_is_picked_up_and_the_question_asked_once() -> None:
    background, go, asked = BackgroundQuery(), threading.Event(), []

    def slow() -> str:
        asked.append(1)
        go.wait(60)
        return "late"

    assert background.ask("slow", 0.02, slow) is None
    assert background.ask("slow", 0.02, slow) is None
    assert background.ask("other", 0.02, lambda: "other") is None, "one question at a time"
    go.set()
    assert background.ask("slow", 60, slow) == "late"
    assert len(asked) == 1
    assert background.ask("other", 60, lambda: "other") == "other"


def test_what_a_question_raises_is_raised_where_it_was_asked() -> None:
    def bad() -> str:
        raise ValueError("bad")

    background = BackgroundQuery()
    with pytest.raises(ValueError, match="bad"):
        background.ask("bad", 60, bad)
    assert background.ask("good", 60, lambda: 1) == 1
