"""Few changes become rows of a mirror in this process, with Arrow."""
