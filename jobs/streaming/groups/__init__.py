"""The process of a driver group, which runs several streams."""
