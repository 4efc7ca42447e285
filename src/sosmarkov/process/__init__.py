"""Processes: an initial belief, a transition, and the verbs."""
