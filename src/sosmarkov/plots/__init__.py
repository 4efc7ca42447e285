"""Figures, and the numbers in them. Needs matplotlib (`sosmarkov[plot]`)."""

from sosmarkov.plots.beliefs import plot_belief, plot_marginals_over_time, plot_stationary
from sosmarkov.plots.curves import plot_calibration, plot_fan, plot_training
from sosmarkov.plots.figures import ck_test, fan, save
