"""Cases of every expectation that a contract can have."""

from __future__ import annotations

from tests.helpers.contract_cases.case import Case
from tests.helpers.contract_cases.columns import COLUMNS
from tests.helpers.contract_cases.tables import TABLES
from tests.helpers.contract_cases.texts import TEXTS
from tests.helpers.contract_cases.values import VALUES

CASES: tuple[Case, ...] = (*VALUES, *TEXTS, *COLUMNS, *TABLES)
