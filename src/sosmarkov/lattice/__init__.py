"""Lattices of splines: sharp steps, exactly."""
