"""Learn a Bayesian network from samples, ask it about any of its variables, and hold the answers against simulation.

Three variables that are neither linear nor Gaussian: x has two modes, y = sin(2 x) + noise, and z = x y + skewed noise
depends on both. From a few thousand samples a network x -> y, (x, y) -> z is learned. Its marginals, conditionals and
box probabilities, each one contraction of tensors, are compared with a million simulated samples. A second network,
of six blocks, shows what answers cost.

Run it with `python examples/network.py --out demo`.
"""

import argparse
import time
from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import sosmarkov as sm
from sosmarkov import plots

PARENTS = {"y": ["x"], "z": ["x", "y"]}
# Where conditionals are asked about: some blocks fixed, the mean of another wanted.
CONDITIONS = (
    ({"x": -1.2}, "y"), ({"x": 0.9}, "y"), ({"z": 0.8}, "x"), ({"z": 1.5}, "x"), ({"y": -0.8}, "z"),
    ({"x": 0.6, "y": 0.9}, "z"), ({"x": -1.0, "y": -0.9}, "z"),
)  # fmt: skip
SHOWN = CONDITIONS[2], CONDITIONS[5]
# Simulated samples this near to a fixed value, in standard deviations, stand for it.
NEAR = 0.05
BOXES = (
    {"x": (-np.inf, 0.0)}, {"y": (0.5, np.inf)}, {"x": (0.0, 1.0), "y": (0.5, 1.5)}, {"z": (1.0, np.inf)},
    {"x": (-np.inf, -1.0), "z": (0.0, 1.0)}, {"x": (0.5, 1.5), "y": (0.0, 1.0), "z": (0.0, 1.0)},
)  # fmt: skip
SIX = {"b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"], "f": ["d"]}


def simulate(count: int, seed: int) -> dict[str, np.ndarray]:
    """Samples by name, each of shape (count, 1)."""
    rng = np.random.default_rng(seed)
    x = np.where(rng.random(count) < 0.4, rng.normal(-1.2, 0.45, count), rng.normal(0.9, 0.5, count))
    y = np.sin(2.0 * x) + 0.3 * rng.normal(size=count)
    z = x * y + 0.2 * (rng.gamma(3.0, size=count) - 3.0)
    return {"x": x[:, None], "y": y[:, None], "z": z[:, None]}


def simulate_six(count: int, seed: int) -> dict[str, np.ndarray]:
    """Six blocks, the first of them two-dimensional: a -> b, c; (b, c) -> d; d -> e, f."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(count, 2)) * [1.0, 0.5] + np.where(rng.random((count, 1)) < 0.5, -1.0, 1.0)
    b = np.tanh(a[:, :1]) + 0.4 * rng.normal(size=(count, 1))
    c = a[:, :1] * a[:, 1:] / 2.0 + 0.5 * rng.normal(size=(count, 1))
    d = b * c + 0.5 * rng.normal(size=(count, 1))
    e = np.abs(d) + 0.3 * rng.normal(size=(count, 1))
    f = 0.7 * d + 0.3 * rng.gamma(2.0, size=(count, 1))
    return {"a": a, "b": b, "c": c, "d": d, "e": e, "f": f}


def kolmogorov(samples: np.ndarray, belief: sm.NetworkBelief, points: int = 1000) -> float:
    """The largest difference of the distribution functions, at quantiles of the samples of one coordinate."""
    ordered = np.sort(samples.ravel())
    where = np.linspace(0, len(ordered) - 1, points).astype(int)
    return float(np.max(np.abs(np.asarray(belief.cdf(ordered[where][:, None])) - (where + 0.5) / len(ordered))))


def kolmogorov_of_samples(few: np.ndarray, many: np.ndarray) -> float:
    """The same between two sets of samples: what chance alone does."""
    few, many = np.sort(few.ravel()), np.sort(many.ravel())
    return float(np.max(np.abs(np.searchsorted(few, many) / len(few) - np.arange(len(many)) / len(many))))


def compare_marginals(network: sm.BayesianNetwork, truth: dict[str, np.ndarray], training: dict[str, np.ndarray]):
    """Kolmogorov distances of the 1-D marginals, and those of the training samples themselves."""
    print(f"\n{'marginal, Kolmogorov distance':<34} {'network':>8} {'training samples':>17}")
    found = {}
    for name in network.names:
        found[name] = kolmogorov(truth[name], network.marginal(name))
        print(f"{name:<34} {found[name]:>8.4f} {kolmogorov_of_samples(training[name], truth[name]):>17.4f}")
    return found


def compare_conditionals(network: sm.BayesianNetwork, truth: dict[str, np.ndarray]) -> float:
    """Conditional means beside the means of simulated samples near the fixed values; the largest difference.

    In standard deviations of the conditional.
    """
    print(f"\n{'conditional mean':<34} {'network':>8} {'simulated':>10} {'+-':>7} {'difference/std':>15}")
    worst = 0.0
    for fixed, wanted in CONDITIONS:
        belief = network.condition(fixed).marginal(wanted)
        near = np.all([np.abs(truth[k] - v) < NEAR * np.std(truth[k]) for k, v in fixed.items()], axis=0).ravel()
        there = truth[wanted][near, 0]
        mean, std = float(belief.mean()[0]), float(np.std(there))
        worst = max(worst, abs(mean - there.mean()) / std)
        name = f"E[{wanted} | {', '.join(f'{k} = {v:g}' for k, v in fixed.items())}]"
        error = std / np.sqrt(len(there))
        print(f"{name:<34} {mean:>8.3f} {there.mean():>10.3f} {error:>7.3f} {(mean - there.mean()) / std:>15.3f}")
    return worst


def compare_boxes(network: sm.BayesianNetwork, truth: dict[str, np.ndarray]) -> float:
    """Probabilities of boxes, all in one question, beside shares of simulated samples; the largest difference."""
    free = (-np.inf, np.inf)
    asked = {name: np.array([box.get(name, free) for box in BOXES]) for name in network.names}
    found = network.probability({name: (ends[:, :1], ends[:, 1:]) for name, ends in asked.items()})
    print(f"\n{'probability':<46} {'network':>8} {'simulated':>10}")
    worst = 0.0
    for box, probability in zip(BOXES, np.asarray(found), strict=True):
        share = np.mean(np.all([(truth[k] > low) & (truth[k] < high) for k, (low, high) in box.items()], axis=0))
        worst = max(worst, abs(float(probability - share)))
        name = ", ".join(f"{low:g} < {k} < {high:g}" for k, (low, high) in box.items())
        print(f"{name:<46} {probability:>8.4f} {share:>10.4f}")
    return worst


def middle(samples: np.ndarray, outside: float) -> np.ndarray:
    """A grid over all but a share of the samples at either end."""
    low, high = np.quantile(samples, [outside, 1.0 - outside])
    return np.linspace(low, high, 300)


def draw(network: sm.BayesianNetwork, truth: dict[str, np.ndarray], path: Path) -> None:
    """Marginals above; a joint density and two conditionals below. Simulated in grey, the network in blue."""
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.2), layout="constrained")
    for axis, name in zip(axes[0], network.names, strict=True):
        grid = middle(truth[name], 0.0005)
        axis.hist(truth[name][:, 0], bins=200, range=(grid[0], grid[-1]), density=True, color="0.8", label="simulated")
        axis.plot(grid, network.marginal(name).prob(grid[:, None]), color="tab:blue", label="marginal()")
        axis.set(xlabel=name, title=f"p({name})")
        axis.set_ylim(bottom=0)
    axes[0, 0].set_ylabel("density")
    axes[0, 0].legend(fontsize=8, frameon=False)

    joint = axes[1, 0]
    x, y = np.linspace(-2.8, 2.6, 120), np.linspace(-2.0, 2.0, 110)
    points = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    joint.scatter(truth["x"][:3000], truth["y"][:3000], s=1, color="0.6", label="simulated")
    joint.contour(x, y, np.asarray(network.marginal(["x", "y"]).prob(points)).T, levels=7, linewidths=1.0)
    joint.set(xlabel="x", ylabel="y", title="p(x, y), z integrated out")

    for axis, (fixed, wanted) in zip(axes[1, 1:], SHOWN, strict=True):
        near = np.all([np.abs(truth[k] - v) < NEAR * np.std(truth[k]) for k, v in fixed.items()], axis=0).ravel()
        grid = middle(truth[wanted][near], 0.001)
        there = truth[wanted][near, 0]
        bins = 80 if len(there) > 5000 else 40
        axis.hist(there, bins=bins, range=(grid[0], grid[-1]), density=True, color="0.8", label="simulated, near")
        axis.plot(grid, network.condition(fixed).marginal(wanted).prob(grid[:, None]), label="condition()")
        given = ", ".join(f"{k} = {v:g}" for k, v in fixed.items())
        axis.set(xlabel=wanted, title=f"p({wanted} | {given})")
        axis.set_ylim(bottom=0)
    axes[1, 1].legend(fontsize=8, frameon=False)
    plots.save(figure, path)


def time_six(count: int, steps: int, seed: int) -> dict[str, float]:
    """Seconds to learn six blocks, to answer four questions the first time, and again."""
    begin = time.perf_counter()
    network = sm.fit_network(simulate_six(count, seed), parents=SIX, size=6, steps=steps, seed=seed)
    learned = time.perf_counter() - begin
    print(f"\nsix blocks, size 6, {network.parameter_count} numbers: learned in {learned:.1f} s, compilation included")
    asked = []
    for e in (0.5, 1.0):
        begin = time.perf_counter()
        posterior = network.condition({"e": e, "f": 1.0})
        np.asarray(posterior.marginal("a").mean())
        np.asarray(posterior.marginal("d").prob(np.linspace(-3, 3, 200)[:, None]))
        float(posterior.probability({"b": (0.0, np.inf)}))
        float(network.probability({"a": ([0.0, 0.0], [np.inf, np.inf]), "f": (e, np.inf)}))
        asked.append(time.perf_counter() - begin)
    print(f"four questions: {asked[0]:.1f} s the first time, {asked[1]:.3f} s after that")
    return {"six_learned": learned, "six_first": asked[0], "six_again": asked[1]}


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Simulate, learn, ask, compare, draw; returns the figures by name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=5000, help="samples to learn from")
    parser.add_argument("--size", type=int, default=None, help="basis functions; chosen from the data where absent")
    parser.add_argument("--steps", type=int, default=1000, help="training steps")
    parser.add_argument("--truth", type=int, default=1_000_000, help="simulated samples to compare with")
    parser.add_argument(
        "--six-steps", type=int, default=500, help="training steps of the six blocks; 0 leaves them out"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the samples and of training")
    options = parser.parse_args(arguments)

    training, truth = simulate(options.count, options.seed), simulate(options.truth, options.seed + 1)
    begin = time.perf_counter()
    network = sm.fit_network(training, parents=PARENTS, size=options.size, steps=options.steps, seed=options.seed)
    print(f"learned from {options.count} samples in {time.perf_counter() - begin:.0f} s")
    print(network.history)
    print(network.check())
    distances = compare_marginals(network, truth, training)
    worst_mean = compare_conditionals(network, truth)
    worst_box = compare_boxes(network, truth)

    draws = network.sample(jax.random.key(options.seed), 2000)
    print(f"\n2000 exact draws: mean {np.concatenate([d.mean(axis=0) for d in draws.values()]).round(3)},")
    print(f"mean of the network: {np.asarray(network.mean()).round(3)}")
    path = options.out / "network.png"
    draw(network, truth, path)
    print(f"figure: {path}")
    found = {"kolmogorov": max(distances.values()), "conditional_mean": worst_mean, "box": worst_box}
    if options.six_steps:
        found |= time_six(options.count, options.six_steps, options.seed)
    return found


if __name__ == "__main__":
    main()
