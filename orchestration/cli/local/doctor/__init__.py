"""Command `frazil doctor`: what is wrong with an installation and with the services of a deployment."""
