"""Model files: one file a model, checked when read, nothing in it executed."""
