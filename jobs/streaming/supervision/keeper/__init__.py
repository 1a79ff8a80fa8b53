"""The watchdog (keeper): waits beside a driver and starts the next one."""
