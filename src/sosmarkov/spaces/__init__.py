"""From the coordinates people give to those a model works in, and back."""
