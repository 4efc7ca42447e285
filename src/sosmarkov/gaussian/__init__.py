"""One linear step with Gaussian noise: beliefs are Gaussian mixtures, carried, filtered and smoothed exactly."""
