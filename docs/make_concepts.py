"""Make the pictures of docs/concepts.md: a particle between two wells, learned with six functions.

Needs matplotlib. Run it with `python docs/make_concepts.py`.
"""

from pathlib import Path
from typing import Any

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov.inference.propagate import step_matrix
from sosmarkov_bench.double_well import NOISE, drift

IMAGES = Path(__file__).parent / "images"
X = np.linspace(-2.4, 2.4, 161)
SHOWN = (0, 1, 3, 12)
START = 0.3


def to_model(process: sm.MarkovProcess) -> np.ndarray:
    """The grid in model space, shape (161, 1)."""
    return np.asarray(jax.vmap(lambda x: process.transform.forward(x)[0])(X[:, None]))


def values(form: Any, y: np.ndarray) -> np.ndarray:
    """A form on the grid."""
    return np.exp(np.asarray(jax.vmap(form.log_value)(y)))


def functions(basis: sm.Basis, y: np.ndarray) -> np.ndarray:
    """Every function on the grid, shape (161, n)."""
    found = jax.vmap(basis.evaluate)(y)
    return np.asarray(found.sign * np.exp(found.log_abs))


def kernel(process: sm.MarkovProcess) -> np.ndarray:
    """p(x' | x) on the grid, x down and x' across."""
    return np.exp(np.asarray(process.transition.log_prob(X[None, :, None], X[:, None, None])))


def image(axis: Any, table: np.ndarray, title: str) -> None:
    """A function of x (across) and x' (up)."""
    axis.imshow(table.T, origin="lower", extent=(X[0], X[-1], X[0], X[-1]), cmap="Blues", aspect="equal", vmin=0)
    axis.set(title=title, xlabel="x", ylabel="x'")


def draw_transition(process: sm.MarkovProcess) -> Figure:
    """F, g, p and the truth."""
    g, p = values(process.transition.g, to_model(process)), kernel(process)
    f = p * g[:, None] / g[None, :]
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), layout="constrained")
    image(axes[0], f, "f(x, x'): a sum of squares")
    axes[1].plot(X, g, color="tab:orange")
    axes[1].set(title="g(x): one factor, used twice", xlabel="x", ylim=(0, None))
    image(axes[2], p, "p(x' | x) = g(x') f(x, x') / g(x)")
    image(axes[3], np.exp(-0.5 * ((X[None] - drift(X)[:, None]) / NOISE) ** 2), "the true p(x' | x)")
    return figure


def draw_propagation(process: sm.MarkovProcess) -> Figure:
    """Beliefs from a known state, what is left of them without g, their coefficients, the matrix of a step."""
    y, beliefs = to_model(process), process.propagate(max(SHOWN), initial=[START])
    n = process.transition.psi.size
    figure = plt.figure(figsize=(13, 6.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[3, 1.1])
    axes = left.subplots(3, len(SHOWN))
    for column, k in zip(axes.T, SHOWN, strict=True):
        column[0].set(title=f"k = {k}", ylim=(0, 1.3), xlim=(X[0], X[-1]))
        if k == 0:
            column[0].axvline(START, color="tab:blue")
            for axis in column[1:]:
                axis.axis("off")
            continue
        belief: Any = beliefs[k]
        C = np.asarray(belief.h.matrix)
        column[0].fill_between(X, np.asarray(belief.prob(X[:, None])), color="tab:blue", alpha=0.5)
        column[1].plot(X, values(belief.h, y), color="tab:green")
        column[1].set(xlim=(X[0], X[-1]), ylim=(0, None))
        size = np.abs(C).max()
        column[2].imshow(C, cmap="RdBu", vmin=-size, vmax=size)
        column[2].set(xticks=[], yticks=[])
    axes[0, 0].set(ylabel="belief $p_k = g\\, h_k$")
    axes[1, 1].set(ylabel="$h_k = \\psi^T C_k\\, \\psi$")
    axes[2, 1].set(ylabel=f"$C_k$, {n} x {n}")
    S = np.asarray(step_matrix(process.transition))
    axis = right.subplots()
    size = np.quantile(np.abs(S), 0.98)
    axis.imshow(S, cmap="RdBu", vmin=-size, vmax=size)
    axis.set(title=f"one step: $C_{{k+1}} = S\\, C_k$,\nS is {len(S)} x {len(S)}", xticks=[], yticks=[])
    return figure


def draw_learned(process: sm.MarkovProcess) -> Figure:
    """The functions and the matrices between them."""
    y, transition = to_model(process), process.transition
    K = np.asarray(transition.coupling.K)  # type: ignore[attr-defined]
    figure, axes = plt.subplots(1, 2 + K.shape[-1], figsize=(13, 2.9), layout="constrained")
    for axis, basis, name in ((axes[0], transition.phi, "phi(x)"), (axes[1], transition.psi, "psi(x')")):
        axis.plot(X, functions(basis, y), linewidth=1.2)
        axis.set(title=f"{name}: {basis.size} functions", xlabel=name[4:-1], yticks=[])
    for r, axis in enumerate(axes[2:]):
        size = np.abs(K).max()
        axis.imshow(K[..., r], cmap="RdBu", vmin=-size, vmax=size)
        axis.set(title=f"$K_{{{r + 1}}}$", xticks=[], yticks=[])
    return figure


def simulate(count: int, steps: int) -> np.ndarray:
    """Trajectories (count, steps + 1, 1) that start all over both wells."""
    rng = np.random.default_rng(0)
    x = [rng.uniform(-1.5, 1.5, size=(count, 1))]
    for _ in range(steps):
        x.append(drift(x[-1]) + NOISE * rng.normal(size=(count, 1)))
    return np.stack(x, axis=1)


def main() -> None:
    """Learn, draw."""
    process = sm.fit(
        simulate(1000, 12), size=6, steps=600, objective="transitions", surrogate=False, background=0.0
    )  # fmt: skip
    drawn = {"transition": draw_transition, "propagation": draw_propagation, "learned": draw_learned}
    for name, draw in drawn.items():
        plots.save(draw(process), IMAGES / f"concept-{name}.png", dpi=80)


if __name__ == "__main__":
    main()
