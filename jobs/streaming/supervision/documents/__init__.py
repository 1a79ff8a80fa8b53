"""Documents of drivers: heartbeat, launch, control request, watchdog record."""
