"""Arrays, numbers, files: what every other room stands on; JAX and NumPy only."""
