"""The JVM artifacts, and what a machine must have."""
