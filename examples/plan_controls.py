"""Learn a pendulum from random torques, plan torques by gradient ascent, and try the plan out.

The simulator is Gymnasium's `Pendulum-v1`, started near hanging; a torque is held for four of its steps. Asked for: be
in the goal box at the last step, and leave the safe box on the way with at most a small probability. Both are closed
form in the learned process and differentiable in the torques. The plan is then tried on draws of the process itself,
which it has to agree with, and on the simulator, which says how good the process is.

Needs `gymnasium`. Run it with `python examples/plan_controls.py --out demo`.
"""

import argparse
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import optax

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov_bench.pendulum import STEPS, TORQUE, simulate

# Angle from hanging and angular velocity.
GOAL = np.array([0.5, -1.5]), np.array([1.3, 1.5])
SAFE = np.array([-1.2, -np.inf]), np.array([1.5, np.inf])
LEAVE_AT_MOST = 0.05


def answers(process: sm.MarkovProcess, torques: jax.Array) -> tuple[jax.Array, jax.Array]:
    """P(in the goal box at the last step) and P(left the safe box before), under a sequence of torques."""
    goal = process.propagate(STEPS, inputs=torques)[STEPS].probability(*GOAL)
    return goal, 1.0 - process.stay_probability(*SAFE, STEPS, inputs=torques)[-1]


def plan(process: sm.MarkovProcess, rounds: int) -> jax.Array:
    """Torques of shape (STEPS, 1): Adam on log P(goal), with what the bound on leaving is exceeded by against it."""

    def loss(raw: jax.Array) -> jax.Array:
        goal, leave = answers(process, TORQUE * jnp.tanh(raw))
        return -jnp.log(goal) + 50.0 * jnp.maximum(leave - 0.8 * LEAVE_AT_MOST, 0.0)

    optimiser = optax.adam(0.1)

    @eqx.filter_jit
    def improve(raw: jax.Array, state: optax.OptState) -> tuple[jax.Array, optax.OptState]:
        updates, state = optimiser.update(jax.grad(loss)(raw), state)
        return jnp.asarray(optax.apply_updates(raw, updates)), state

    raw = jnp.full((STEPS, 1), 0.1)
    state = optimiser.init(raw)
    for _ in range(rounds):
        raw, state = improve(raw, state)
    return TORQUE * jnp.tanh(raw)


def shares(states: np.ndarray) -> tuple[float, float]:
    """How many end in the goal box, and how many leave the safe one."""
    inside = np.all((states > SAFE[0]) & (states < SAFE[1]), axis=2)[:, 1:].all(axis=1)
    reached = np.all((states[:, -1] > GOAL[0]) & (states[:, -1] < GOAL[1]), axis=1)
    return float(reached.mean()), float(1.0 - inside.mean())


def draw(process: sm.MarkovProcess, torques: np.ndarray, real: np.ndarray, path: Path) -> None:
    """Angles over time: the process's intervals under the plan, the simulator's trajectories, the boxes."""
    beliefs = process.propagate(STEPS, inputs=torques)
    figure, axes = plt.subplots(2, 1, figsize=(7, 5), sharex=True, height_ratios=[3, 1], layout="constrained")
    means, stds = np.asarray(beliefs.means())[:, 0], np.sqrt(np.asarray(beliefs.covariances())[:, 0, 0])
    steps = np.arange(STEPS + 1)
    axes[0].plot(steps, real[:100, :, 0].T, color="black", alpha=0.12, linewidth=0.8)
    axes[0].fill_between(steps, means - 2 * stds, means + 2 * stds, alpha=0.25, label="learned, mean and 2 deviations")
    axes[0].plot(steps, means, color="tab:blue")
    for end in (SAFE[0][0], SAFE[1][0]):
        axes[0].axhline(end, color="tab:red", linestyle="--", linewidth=1)
    axes[0].plot([STEPS, STEPS], [GOAL[0][0], GOAL[1][0]], color="tab:green", linewidth=6, label="goal")
    axes[0].plot([], [], color="tab:red", linestyle="--", label="ends of the safe box")
    axes[0].plot([], [], color="black", alpha=0.4, label="simulator under the plan")
    axes[0].set(ylabel="angle from hanging")
    axes[0].legend(fontsize=8, frameon=False, loc="upper left")
    axes[1].step(np.arange(STEPS + 1), np.append(torques[:, 0], torques[-1, 0]), where="post")
    axes[1].set(ylabel="torque", xlabel="step", ylim=(-2.2, 2.2))
    plots.save(figure, path)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Simulate, learn, plan, try; returns probabilities and shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the figure")
    parser.add_argument("--count", type=int, default=1000, help="trajectories to learn from")
    parser.add_argument("--size", type=int, default=20, help="basis functions")
    parser.add_argument("--steps", type=int, default=1200, help="training steps")
    parser.add_argument("--objective", default=None, help="what training is for, as `sm.fit` takes it")
    parser.add_argument("--rounds", type=int, default=150, help="steps of the plan's gradient ascent")
    parser.add_argument("--draws", type=int, default=100_000, help="trajectories of the process to try the plan on")
    parser.add_argument("--runs", type=int, default=2000, help="runs of the simulator to try the plan on")
    options = parser.parse_args(arguments)

    begin = time.perf_counter()
    states, torques = simulate(options.count, 0)
    # Boxes are closed form for axis-aligned functions.
    settings = {"basis": "gaussian", "size": options.size, "steps": options.steps, "objective": options.objective}
    process = sm.fit(states, inputs=torques, members=1, **settings)
    print(f"learned from {options.count} trajectories in {time.perf_counter() - begin:.0f} s")
    begin = time.perf_counter()
    planned = plan(process, options.rounds)
    goal, leave = (float(value) for value in answers(process, planned))
    print(f"planned in {time.perf_counter() - begin:.0f} s: {np.round(np.asarray(planned)[:, 0], 2).tolist()}")
    drawn = np.asarray(process.sample(jax.random.key(1), options.draws, STEPS, inputs=planned))
    real, _ = simulate(options.runs, 1, np.asarray(planned))
    found = {"goal": goal, "leave": leave}
    for name, sample in (("drawn", drawn), ("real", real)):
        found[f"goal_{name}"], found[f"leave_{name}"] = shares(sample)
    error = np.sqrt(goal * (1.0 - goal) / options.draws)
    print(
        f"in the goal box: {goal:.4f} closed form, {found['goal_drawn']:.4f} of {options.draws:,} draws (standard error"
        f" {error:.4f}), {found['goal_real']:.4f} of {options.runs:,} runs of the simulator"
    )
    print(
        f"left the safe box: {leave:.4f} closed form (asked for at most {LEAVE_AT_MOST}),"
        f" {found['leave_drawn']:.4f} of the draws, {found['leave_real']:.4f} of the runs"
    )
    draw(process, np.asarray(planned), real, options.out / "plan_controls.png")
    print(f"figure: {options.out / 'plan_controls.png'}")
    return found


if __name__ == "__main__":
    main()
