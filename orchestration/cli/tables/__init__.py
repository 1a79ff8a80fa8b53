"""Commands about tables: maintain, audit, check, at, tag, mirror, publish."""
