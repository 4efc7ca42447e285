"""Doors to other libraries' objects: episodes of control tasks in, transition models of trackers out."""
