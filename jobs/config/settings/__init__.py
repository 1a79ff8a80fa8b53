"""The settings, loading of files, generations, groups."""
