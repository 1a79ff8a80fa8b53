"""Command `frazil doctor`: health checks of an installation and of a deployment's services."""
