# pyarrow.compute makes its functions when it is imported, so a type checker would see none of them.
from typing import Any

def __getattr__(name: str) -> Any: ...
