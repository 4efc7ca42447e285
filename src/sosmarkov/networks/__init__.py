"""Bayesian networks: joint densities whose conditionals are rational and whose factors cancel."""
