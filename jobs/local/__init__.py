"""Local services and programs: broker, registry, generator, certificate."""
