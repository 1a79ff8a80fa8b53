"""Primitive values to Arrow arrays, exactly."""
