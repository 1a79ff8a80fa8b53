"""Files that tasks wrote where the driver does not find them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.errors import FrazilError
from jobs.stream.remote_tasks import refuse_unseen


def file(path: str, size: int = 3) -> Any:
    return SimpleNamespace(file_path=path, file_size_in_bytes=size)


def test_those_of_a_folder_that_is_not_shared_are_refused(tmp_path: Path) -> None:
    (there := tmp_path / "a b.parquet").write_bytes(b"abc")
    refuse_unseen([file(str(there)), file(there.as_uri()), file("s3://lake/a.parquet")], "spark://one:7077")
    for each in (file(f"{tmp_path}/gone.parquet"), file(str(there), 4)):
        with pytest.raises(FrazilError, match=r"on spark://one:7077 wrote .*Nothing of the batch is committed"):
            refuse_unseen([each], "spark://one:7077")
