"""Decisions after a crash, a rollback, or an operator's answer."""
