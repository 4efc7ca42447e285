"""How the lattice form learns: local regressions, rows compiled from them, counts."""
