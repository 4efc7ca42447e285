"""Figures, and the numbers in them. Needs matplotlib (`sosmarkov[plot]`)."""

from sosmarkov.plots.figures import ck_test, fan, save

__all__ = ["ck_test", "fan", "save"]
