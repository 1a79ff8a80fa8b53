"""pandas stays out of processes that have no use for it, and can still be had."""

import subprocess
import sys

import pytest

OUT = "from jobs.base.system.pandas_import import keep_pandas_out; keep_pandas_out()\n"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_an_array_of_pyarrow_imports_no_pandas() -> None:
    said = "import sys, pyarrow as pa; pa.array([1]); print('pandas' in sys.modules)"
    assert run(said) == "True", (
        "pyarrow does without pandas by itself: jobs/base/system/pandas_import is not needed any more"
    )
    assert run(OUT + said) == "False"


def test_pandas_can_be_asked_for_afterwards() -> None:
    code = (
        "import pandas, pyarrow as pa; print(pa.table({'a': [1]}).to_pandas()['a'].sum(), pa.array(pandas.Series([2])))"
    )
    assert run(OUT + code).split() == ["1", "[", "2", "]"]


@pytest.mark.parametrize(
    ("module", "before"),
    [
        ("orchestration.definitions", ""),
        ("orchestration.cli.main", ""),
        ("orchestration.cli.streams.status.command", ""),
        ("assets.contract_checks", OUT),
        ("orchestration.sensors.contracts", OUT),
        ("jobs.streaming.supervision.keeper.keeper_process", ""),
        ("jobs.streaming.driver.main", OUT),
        ("jobs.streaming.task.run", OUT),
    ],
)
def test_no_process_imports_what_only_checks_need(module: str, before: str) -> None:
    said = f"import sys, {module}; print({{'pandas', 'great_expectations'}} & {{*sys.modules}})"
    assert run(before + said) == "set()"


HOME = """
import sys, tempfile, time
from pathlib import Path
home = Path(tempfile.mkdtemp()) / "home"
"""
TOLD = "print({'pandas', 'great_expectations'} & {*sys.modules})\n"
CONTRACTS = """
from orchestration.sensors.contracts import ContractsCursor, run_contracts_tick
from resources.deployment import Deployment
from tests.helpers.check_world import CONTRACT, CheckWorld
keys = {"frazil_keys_to_be_unique": {"columns": ["id"]}}
world = CheckWorld(home, {"expectations": [*CONTRACT["expectations"], keys], "check": {"every": "1m"}})
world.land(0, [1.0, None])
tick = run_contracts_tick(Deployment.at(home), lambda: world.landed.catalog, ContractsCursor(), (), time.time() + 90)
assert tick.start, tick
"""
PUBLICATIONS = """
from orchestration.sensors.publications import PublicationsCursor, run_publications_tick
from resources.deployment import Deployment
from tests.unit.quality.publishing.branch_world import BranchWorld
contract = {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]}
world = BranchWorld(home, contract=contract, publish={"gate": "contract", "every": "5m"})
world.land(3)
tick = run_publications_tick(Deployment.at(home), world.catalog, PublicationsCursor(), (), time.time())
assert tick.start, tick
"""
TASK = """
import json
from jobs.config.stream.models import StreamSpec
from jobs.streaming.task.run import run_split
from tests.helpers.tasks import TaskWorld, as_block, records
spec = StreamSpec.model_validate({
    "stream": "payments", "source": {"topics": ["payments"]}, "table": {"name": "orders.payments"},
    "decode": {"value": "json", "schema": "id long, text string"},
    "contract": {"expectations": [{"expect_column_values_to_not_be_null": {"column": "id"}}]},
})
home.mkdir()
world = TaskWorld(home, spec)
block = as_block(records([json.dumps({"id": 1, "text": "a"}).encode(), b"{"]))
assert [kind for kind, *_ in run_split(world.plan(), [block])].count("file") == 2
"""


@pytest.mark.parametrize("code", [CONTRACTS, PUBLICATIONS, TASK], ids=["contracts", "publications", "task"])
def test_what_runs_beside_checks_needs_nothing_of_them(code: str) -> None:
    """Ticks of sensors that ask for checks, and a task that lands rows of a stream with a contract."""
    assert run(OUT + HOME + code + TOLD) == "set()"
