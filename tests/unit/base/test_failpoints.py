from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.base.failpoints import STEPS, _armed, step

ROOT = Path(__file__).resolve().parents[3]
PASS_ALL = """
from jobs.base.failpoints import STEPS, step
for _ in range(3):
    for name in STEPS:
        step(name)
    print("round", flush=True)
"""


def run(steps: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PASS_ALL],
        env={**os.environ, "FRAZIL_STEPS": steps},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_steps_that_are_listed_are_those_that_are_passed() -> None:
    files = [path for room in ("jobs", "orchestration") for path in (ROOT / room).rglob("*.py")]
    code = "\n".join(path.read_text() for path in files)
    passed = re.findall(r'\b(?:step|dies_elsewhere)\(\s*"(\w+)"(?: if [\w.]+ else "(\w+)")?', code)
    assert {name for names in passed for name in names if name} == STEPS.keys()


def test_nothing_is_armed_by_default() -> None:
    for name in STEPS:
        step(name)


@pytest.mark.parametrize(("steps", "rounds"), [("before_commit=kill", 0), ("after_commits=kill@3", 2)])
def test_kill_ends_the_process_there_and_then(steps: str, rounds: int) -> None:
    process = run(steps)
    out, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert out.count("round") == rounds
    assert f"step {steps.split('=')[0]}: SIGKILL" in err


def test_stop_stops_the_process_until_it_is_continued() -> None:
    process = run("after_anchor_commit=stop")
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=300)
        assert (process.returncode, out.count("round")) == (0, 3)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("steps", "passes"), [("inside_tasks=kill@2", [False, True, False]), ("", [False] * 3)])
def test_a_process_elsewhere_dies_at_one_pass_and_this_one_lives(steps: str, passes: list[bool]) -> None:
    code = "from jobs.base.failpoints import dies_elsewhere; print([dies_elsewhere('inside_tasks') for _ in range(3)])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "FRAZIL_STEPS": steps}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(passes))
    assert done.stderr.count("step inside_tasks: SIGKILL") == passes.count(True)


def test_several_steps_at_once() -> None:
    assert set(_armed("before_claim=kill,after_tasks=stop@2,")) == {"before_claim", "after_tasks"}


@pytest.mark.parametrize("text", ["before_comit=kill", "before_commit", "before_commit=sleep"])
def test_a_word_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(FrazilError, match="is not STEP=kill or STEP=stop, with STEP one of before_lease"):
        _armed(text)
