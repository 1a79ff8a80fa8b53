"""Spark listens on loopback, its UI elsewhere only where the settings say so; and the UI kills nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.marked import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

# A job is under way while its page is looked at.
SESSION = """
import json, os, sys, threading, urllib.request
from pathlib import Path
from jobs.base.system.processes import session_members
from jobs.clients.spark.session import start_session
from jobs.clients.spark.end import end_spark
from jobs.config.settings.settings import load_settings
from tests.helpers.listening import listening
from tests.helpers.waiting import wait_for

home = Path(sys.argv[1])
spark = start_session(load_settings(None, home=home), "t", conf={"spark.ui.port": "0"}, output=home / "spark.log")
context = spark.sparkContext
port = context.uiWebUrl.rpartition(":")[2]

def slow(values):
    wait_for((home / "seen").exists, "somebody to look", 60)
    return values

def page():
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/jobs/", timeout=60) as answer:
        return answer.read().decode()

thread = threading.Thread(target=lambda: context.parallelize([7], 1).mapPartitions(slow).collect())
thread.start()
wait_for(lambda: "Active Jobs (1)" in page(), "the job to be shown", 60)
kills = "/jobs/job/kill" in page()
(home / "seen").touch()
thread.join(300)
found = [[str(each.address), each.port, each.command[:400]] for each in listening(session_members(os.getsid(0)))]
print(json.dumps({"ui": int(port), "kills": kills, "found": found}))
end_spark()
"""


def session(home: Path, settings: str, **env: str) -> dict[str, Any]:
    (home / "frazil.yaml").write_text(settings)
    answer = subprocess.run(
        [sys.executable, "-c", SESSION, str(home)],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=400,
        start_new_session=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout.splitlines()[-1])


def test_the_ui_is_opened_on_purpose_and_nothing_else_with_it(tmp_path: Path) -> None:
    # Spark would take that address for all that listens.
    said = session(tmp_path, "spark: {driver_memory: 600m, ui_address: 0.0.0.0}\n", SPARK_LOCAL_IP="0.0.0.0")
    assert any("worker_daemon" in command for *_, command in said["found"])
    assert [each[:2] for each in said["found"] if not each[0].startswith("127.")] == [["::", said["ui"]]]
    assert said["kills"] is False
