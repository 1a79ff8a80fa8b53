"""A rescued field becomes a column, also of rows that exist."""
