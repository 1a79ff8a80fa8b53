"""Table health: measure, plan, compact, expire, backfill."""
