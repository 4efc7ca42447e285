"""Sensors p(o | x): known ones, one a file, and the one that is learned jointly with a process."""

from sosmarkov.contracts.reader import Sensor
from sosmarkov.sensors.factor import FactorSensor
from sosmarkov.sensors.function import FunctionSensor
from sosmarkov.sensors.gaussian import GaussianSensor
from sosmarkov.sensors.interval import IntervalSensor
from sosmarkov.sensors.joint import LearnedSensor
from sosmarkov.sensors.linear import LinearSensor
from sosmarkov.sensors.mixture import MixtureSensor

__all__ = [
    "FactorSensor",
    "FunctionSensor",
    "GaussianSensor",
    "IntervalSensor",
    "LearnedSensor",
    "LinearSensor",
    "MixtureSensor",
    "Sensor",
]
