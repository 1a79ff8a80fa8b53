"""Alarms, and the messages about them."""
