"""Documents of drivers: heartbeat, launch, control request, keeper."""
