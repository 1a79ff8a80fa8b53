"""Topics, tables and dead letters as Dagster assets, with their checks."""
