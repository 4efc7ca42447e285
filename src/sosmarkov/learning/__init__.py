"""From data to a process: pairs, a start, objectives, one training loop."""
