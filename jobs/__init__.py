"""What runs without Dagster: drivers, Spark tasks, commands."""
