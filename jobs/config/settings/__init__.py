"""Settings, loading of files, generations, and driver groups."""
