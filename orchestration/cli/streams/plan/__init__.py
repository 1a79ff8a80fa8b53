"""Commands `frazil plan` and `frazil apply`, and how a plan is printed."""
