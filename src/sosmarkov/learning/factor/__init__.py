"""How the rational-factor forms learn."""
