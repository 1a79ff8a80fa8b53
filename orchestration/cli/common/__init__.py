"""Terminal, interrupts, options and errors of all commands."""
