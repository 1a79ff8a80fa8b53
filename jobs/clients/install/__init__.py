"""JVM artifacts, and checks of what a machine must have."""
