"""pandas stays out of processes that have no use for it, and can still be had."""

import subprocess
import sys

import pytest

OUT = "from jobs.system.pandas_import import keep_pandas_out; keep_pandas_out()\n"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_an_array_of_pyarrow_imports_no_pandas() -> None:
    said = "import sys, pyarrow as pa; pa.array([1]); print('pandas' in sys.modules)"
    assert run(said) == "True", (
        "pyarrow does without pandas by itself: jobs/system/pandas_import is not needed any more"
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
        ("orchestration.cli.status.command", ""),
        ("assets.contract_checks", OUT),
        ("orchestration.sensors.contracts_tick", OUT),
        ("jobs.supervise.keeper_process", ""),
        ("jobs.stream.main", OUT),
        ("jobs.task.run", OUT),
    ],
)
def test_no_process_imports_what_only_checks_need(module: str, before: str) -> None:
    said = f"import sys, {module}; print({{'pandas', 'great_expectations'}} & {{*sys.modules}})"
    assert run(before + said) == "set()"
