"""One training loop, over any pytree: minibatch Adam in compiled chunks, the best held-out model kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

_CHUNK = 50
_CLIP = 5.0


@dataclass(frozen=True, eq=False)
class PhaseHistory:
    """What one phase of training did.

    Attributes:
        name: "transitions", "initial" or "beliefs".
        steps: Steps at which the held-out loss was measured.
        training: Mean training loss over the steps before each.
        held_out: Held-out loss at each (equal to training where nothing was held out).
        best_step: The step whose parameters were kept.
        seconds: Wall-clock time, compilation included.
        stopped: Why it ended: "steps", "patience" or "interrupted".
    """

    name: str
    steps: tuple[int, ...]
    training: tuple[float, ...]
    held_out: tuple[float, ...]
    best_step: int
    seconds: float
    stopped: str

    @property
    def best(self) -> float:
        """The held-out loss of the parameters kept."""
        return self.held_out[self.steps.index(self.best_step)]


@dataclass(frozen=True, eq=False)
class History:
    """What training did: its phases, choices and device."""

    phases: tuple[PhaseHistory, ...]
    chosen: dict[str, Any] = field(default_factory=dict)
    device: str = ""

    @property
    def seconds(self) -> float:
        """Wall-clock time of all phases."""
        return sum(phase.seconds for phase in self.phases)

    def __str__(self) -> str:
        """A few lines for a person."""
        lines = [f"{name} = {value}" for name, value in self.chosen.items()]
        for phase in self.phases:
            lines.append(
                f"{phase.name}: held-out loss {phase.best:.4f} at step {phase.best_step} of {phase.steps[-1]}"
                f" ({phase.seconds:.1f} s, ended by {phase.stopped})"
            )
        return "\n".join([*lines, f"{self.seconds:.1f} s on {self.device}"])


class TrainingError(ArithmeticError):
    """Training met a loss that is not a number."""


def _sample(key: Array, data: Any, size: int) -> Any:
    count = jax.tree.leaves(data)[0].shape[0]
    chosen = jax.random.randint(key, (size,), 0, count)
    return jax.tree.map(lambda leaf: leaf[chosen], data)


def train(
    parameters: Any,
    loss: Callable[[Any, Any], Array],
    training: Any,
    held_out: Any,
    *,
    name: str,
    steps: int,
    batch_size: int,
    learning_rate: float,
    patience: int,
    seed: int,
    report: Callable[[str, int, int, float, float], None] | None = None,
) -> tuple[Any, PhaseHistory]:
    """Minimise a loss; returns the parameters with the best held-out loss, and what happened.

    Args:
        parameters: Any pytree; its floating-point arrays are trained.
        loss: Of parameters and a batch (leading axis the batch) to a scalar.
        training: Pytree of arrays with a common leading axis.
        held_out: The same for validation.
        name: For the history and messages.
        steps: At most this many.
        batch_size: Drawn with replacement each step.
        learning_rate: At the start of a cosine schedule.
        patience: Steps without a better held-out loss after which to stop.
        seed: For the batches.
        report: Called after each chunk with (name, step, steps, training loss, held-out loss).
    """
    begin = time.perf_counter()
    size = min(batch_size, jax.tree.leaves(training)[0].shape[0])
    schedule = optax.cosine_decay_schedule(learning_rate, steps, alpha=0.01)
    optimiser = optax.chain(optax.clip_by_global_norm(_CLIP), optax.adam(schedule))
    dynamic, static = eqx.partition(parameters, eqx.is_inexact_array)

    def value(dynamic: Any, batch: Any) -> Array:
        return loss(eqx.combine(dynamic, static), batch)

    @jax.jit
    def chunk(dynamic: Any, state: Any, key: Array, data: Any) -> tuple[Any, Any, Array]:
        def step(carry: Any, key: Array) -> tuple[Any, Array]:
            dynamic, state = carry
            current, gradient = jax.value_and_grad(value)(dynamic, _sample(key, data, size))
            updates, state = optimiser.update(gradient, state, dynamic)
            return (optax.apply_updates(dynamic, updates), state), current

        (dynamic, state), losses = lax.scan(step, (dynamic, state), jax.random.split(key, _CHUNK))
        return dynamic, state, losses

    validate = jax.jit(value)
    state = optimiser.init(dynamic)
    key = jax.random.key(seed)
    best, best_step, best_loss = dynamic, 0, float(validate(dynamic, held_out))
    taken, trained, checked = [0], [float("nan")], [best_loss]
    stopped = "steps"
    done = 0
    try:
        while done < steps:
            dynamic, state, losses = chunk(dynamic, state, jax.random.fold_in(key, done), training)
            done += _CHUNK
            values = np.asarray(losses)
            _require_finite(values, name, done)
            current = float(validate(dynamic, held_out))
            taken.append(done)
            trained.append(float(values.mean()))
            checked.append(current)
            if np.isfinite(current) and not current >= best_loss:
                best, best_step, best_loss = dynamic, done, current
            if report is not None:
                report(name, done, steps, trained[-1], current)
            if done - best_step >= patience:
                stopped = "patience"
                break
    except KeyboardInterrupt:
        stopped = "interrupted"
    seconds = time.perf_counter() - begin
    history = PhaseHistory(name, tuple(taken), tuple(trained), tuple(checked), best_step, seconds, stopped)
    return eqx.combine(best, static), history


def _require_finite(losses: np.ndarray, name: str, done: int) -> None:
    if np.all(np.isfinite(losses)):
        return
    first = done - len(losses) + int(np.flatnonzero(~np.isfinite(losses))[0]) + 1
    raise TrainingError(
        f"Expected finite losses, got one that is not at step {first} of phase '{name}'. Likely causes: a learning"
        " rate too large for these data (lower learning_rate), states far outside the rest (check for outliers),"
        " or too small a rank for the size (raise rank)."
    )


def device_name() -> str:
    """The device JAX computes on."""
    device = jax.devices()[0]
    return f"{device.platform} ({device.device_kind})"


def constant(value: Any) -> Array:
    """An array JAX can hand to a compiled function."""
    return jnp.asarray(value, dtype=float)
