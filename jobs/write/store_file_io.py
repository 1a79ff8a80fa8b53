"""FileIO that trusts the authorities which the settings name for S3.

PyIceberg has no property for them, and Arrow's client trusts those of the system alone. Relied upon, and pinned by
`tests/unit/write/test_store_file_io.py`: `PyArrowFileIO` makes its client of S3 by `_initialize_s3_fs`, and PyArrow
tells by `__reduce__` what one is made of.
"""

from __future__ import annotations

from pathlib import Path

from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from jobs.errors import FrazilError
from jobs.spec.catalog_properties import STORE_AUTHORITIES


class StoreFileIO(PyArrowFileIO):
    """PyIceberg's FileIO, whose client of S3 trusts the authorities in the file of ``s3.ssl.cabundle`` alone."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        made = super()._initialize_s3_fs(netloc)
        named = self.properties.get(STORE_AUTHORITIES)
        if not named:
            return made
        if not Path(str(named)).is_file():
            raise FrazilError(
                f"{STORE_AUTHORITIES}: {named} is no file on this machine.",
                fix=f"name a file with certificates of authorities there, on each machine of tasks; catalog.properties."
                f"{STORE_AUTHORITIES} in frazil.yaml",
            )
        options = made.__reduce__()[1][0]
        return S3FileSystem(**{**options, "tls_ca_file_path": str(named)})
