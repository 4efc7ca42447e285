"""Pure functions on coefficients: what a process verb calls."""
