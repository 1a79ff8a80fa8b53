"""`frazil shell` with real Spark: the stream's rows by SQL, and the exit status of code that raises."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.real_stream import RealStream
from tests.helpers.stream_history import FAILED, ROW

pytestmark = pytest.mark.integration

CODE = """
print("rows", spark.table("frazil.orders.payments").count(), sql("SELECT max(id) FROM orders.payments").first()[0])
print("dead", catalog.load_table("orders.payments_dead").scan().to_arrow().num_rows)
print("zone", spark.conf.get("spark.sql.session.timeZone"))
"""


def test_rows_by_sql_on_a_pipe(tmp_path: Path) -> None:
    stream = RealStream(tmp_path)
    stream.land([ROW, FAILED, ROW])
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(tmp_path), "shell"]
    ran = subprocess.run([*command, "-c", CODE], capture_output=True, text=True, check=False, timeout=600)
    assert (ran.returncode, ran.stdout) == (0, "rows 2 p-0-2\ndead 1\nzone UTC\n"), ran.stderr
    typed = 'sql("SELECT count(*) AS n FROM orders.payments").show()\nsql("SELECT nothing")\n'
    ran = subprocess.run(command, input=typed, capture_output=True, text=True, check=False, timeout=600)
    assert ran.returncode == 0 and "|  2|" in ran.stdout, ran.stderr
    assert 'spark.table("frazil.orders.payments").show()' in ran.stderr and "AnalysisException" in ran.stderr
