"""pandas, kept out of a process that has no use for it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


def keep_pandas_out() -> None:
    """Spare this process the import of pandas with which pyarrow begins its first array, where pandas is installed.

    The import takes 0.3 s of processor and 60 MB, in every process of a driver. pyarrow tries it once and does without
    it from then on, unless pandas is asked of it by name. Who wants pandas can import it afterwards.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    with without_pandas():
        pa.array([0])


@contextlib.contextmanager
def without_pandas() -> Iterator[None]:
    """A block in which pandas, unless it was imported before, cannot be imported: what tries it does without it."""
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
