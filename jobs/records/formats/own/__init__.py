"""Values that a function of an installed package reads."""
