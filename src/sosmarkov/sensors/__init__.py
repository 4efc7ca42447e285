"""Sensors p(o | x): known ones, one a file, and the one that is learned jointly with a process."""

from sosmarkov.contracts.reader import Sensor as Sensor
from sosmarkov.sensors.factor import FactorSensor as FactorSensor
from sosmarkov.sensors.function import FunctionSensor as FunctionSensor
from sosmarkov.sensors.gaussian import GaussianSensor as GaussianSensor
from sosmarkov.sensors.interval import IntervalSensor as IntervalSensor
from sosmarkov.sensors.joint import LearnedSensor as LearnedSensor
from sosmarkov.sensors.linear import LinearSensor as LinearSensor
from sosmarkov.sensors.mixture import MixtureSensor as MixtureSensor
