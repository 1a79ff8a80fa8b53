"""Operations, and those that change a table's columns."""
