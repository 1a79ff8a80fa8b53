"""Interfaces of formats: decoders, their options, writer schemas, problems of records."""
