"""The crash test: kill drivers at every failpoint, and count."""
