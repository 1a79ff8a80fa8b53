"""Blocked import of pandas, for processes that do not use it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


def keep_pandas_out() -> None:
    """Spare this process the import of pandas that pyarrow tries when it makes its first array.

    If pandas is installed, the import takes 0.3 s of CPU and 60 MB in every process of a driver. pyarrow tries it once
    and then does without, unless a caller asks it for pandas. The process can still import pandas afterwards.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    with without_pandas():
        pa.array([0])


@contextlib.contextmanager
def without_pandas() -> Iterator[None]:
    """Within the block, an import of pandas fails, unless pandas was imported before."""
    refused = _NoPandas()
    sys.meta_path.insert(0, refused)
    try:
        yield
    finally:
        sys.meta_path.remove(refused)


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("No module named 'pandas': this process does without it", name=fullname)
        return None
