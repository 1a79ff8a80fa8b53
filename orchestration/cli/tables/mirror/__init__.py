"""Commands `frazil mirror …`."""
