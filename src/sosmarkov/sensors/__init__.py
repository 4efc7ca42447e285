"""Sensors p(o | x): known ones, and those learned with a process."""
