"""The driver's process: query, pace, heartbeat, end."""
