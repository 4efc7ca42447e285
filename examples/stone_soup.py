"""Track with Stone Soup under dynamics that were learned, and hold its particles against the exact filter.

A particle in two wells: x' = x + 0.2 (x - x^3) + noise. A process is learned from trajectories and given to Stone
Soup's particle predictor as its transition model; readings of the state with noise come in one by one. The process
filters the same readings in closed form: the particles' means scatter about the exact ones, less the more there are.

Needs Stone Soup: `pip install 'sosmarkov[tracking]'`. Run it with `python examples/stone_soup.py`.
"""

import argparse
from datetime import datetime, timedelta

import jax
import numpy as np
from stonesoup.models.measurement.linear import LinearGaussian
from stonesoup.predictor.particle import ParticlePredictor
from stonesoup.resampler.particle import SystematicResampler
from stonesoup.types.array import StateVector, StateVectors
from stonesoup.types.detection import Detection
from stonesoup.types.hypothesis import SingleHypothesis
from stonesoup.types.state import ParticleState
from stonesoup.types.track import Track
from stonesoup.updater.particle import ParticleUpdater

import sosmarkov as sm
from sosmarkov.adapters.stone_soup import transition_model
from sosmarkov_bench.double_well import simulate

READING = 0.5
STEP = timedelta(seconds=1)


def track(process: sm.MarkovProcess, readings: np.ndarray, particles: int, seed: int) -> np.ndarray:
    """Means of Stone Soup's particles after each reading, shape (T, 1)."""
    sensor = LinearGaussian(ndim_state=1, mapping=(0,), noise_covar=np.array([[READING**2]]))
    predictor = ParticlePredictor(transition_model(process, STEP, seed=seed))
    updater = ParticleUpdater(sensor, SystematicResampler())
    begin = datetime(2030, 1, 1)
    drawn = np.asarray(process.initial.sample(jax.random.key(seed), particles))
    weights = np.full(particles, -np.log(particles))
    state = ParticleState(StateVectors(drawn.T), log_weight=weights, timestamp=begin)
    found = Track()
    for k, reading in enumerate(readings):
        seen = Detection(StateVector(reading), timestamp=begin + k * STEP, measurement_model=sensor)
        # The first reading belongs to the initial state.
        expected = state if k == 0 else predictor.predict(state, timestamp=seen.timestamp)
        state = updater.update(SingleHypothesis(expected, seen))
        found.append(state)
    return np.array([np.asarray(one.mean, dtype=float).reshape(-1) for one in found])


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Learn, track both ways and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--readings", type=int, default=40)
    parser.add_argument("--particles", type=int, default=1000)
    options = parser.parse_args(arguments)

    data = simulate(options.count, 13, seed=0)
    process = sm.fit(data, size=options.size, steps=options.steps, objective="transitions", progress=False)
    truth = simulate(1, options.readings, seed=1)[0]
    readings = truth + READING * np.random.default_rng(2).normal(size=truth.shape)

    means = track(process, readings, options.particles, seed=0)
    exact = process.filter(readings, sensor=sm.GaussianSensor([0], std=[READING]))
    exact_means = np.stack([np.asarray(belief.mean()) for belief in exact.beliefs])

    def error(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.sqrt(np.mean((a - b) ** 2)))

    found = {
        "readings": error(readings, truth),
        "particles": error(means, truth),
        "exact": error(exact_means, truth),
        "apart": error(means, exact_means),
    }
    print(f"root mean square error of the readings            {found['readings']:.3f}")
    print(f"  of {options.particles} Stone Soup particles, learned dynamics  {found['particles']:.3f}")
    print(f"  of the exact filter of the same process          {found['exact']:.3f}")
    print(f"particles' means against the exact ones           {found['apart']:.3f}")
    return found


if __name__ == "__main__":
    main()
