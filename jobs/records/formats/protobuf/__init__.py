"""Protobuf messages of a registry's schemas."""
