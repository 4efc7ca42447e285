"""One training loop, over any pytree: minibatch Adam in compiled chunks, the best held-out model kept.

Members are trained side by side: every array of the parameters has a leading axis of members, each with its own
batches, its own early stopping and its own best. One model is an ensemble of one.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sosmarkov.data.history import PhaseHistory
from sosmarkov.learning.progress import Progress

CHUNK = 50


class TrainingError(ArithmeticError):
    """Training met a loss that is not a number."""


class Plan(NamedTuple):
    """How a phase is trained.

    Attributes:
        name: For the history and messages.
        steps: At most this many, in chunks of 50.
        batch_size: Rows drawn each step, with replacement.
        learning_rate: At the start of a cosine schedule that ends at a hundredth of it.
        patience: Steps without a better held-out loss after which a member has stopped improving.
        seed: For the batches; members add their number.
        clip: Largest norm of a member's gradient; larger ones are scaled down to it.
    """

    name: str
    steps: int
    batch_size: int
    learning_rate: float
    patience: int
    seed: int
    clip: float = 5.0

    @property
    def rule(self) -> Plan:
        """What a compiled chunk depends on, beside shapes and the loss."""
        return self._replace(name="", patience=0, seed=0)

    @property
    def optimiser(self) -> optax.GradientTransformation:
        """Adam on clipped gradients."""
        schedule = optax.cosine_decay_schedule(self.learning_rate, max(self.steps, 1), alpha=0.01)
        return optax.chain(optax.clip_by_global_norm(self.clip), optax.adam(schedule))


class State(NamedTuple):
    """Everything a phase needs to go on; arrays lead with the axis of members."""

    trained: Any
    optimiser: Any
    best: Any
    best_loss: Array
    best_step: Array


@runtime_checkable
class Keeper(Protocol):
    """Where a phase leaves its state after every chunk, and where it finds one to go on from."""

    def load(self, name: str, like: State) -> tuple[State, PhaseHistory] | None:
        """State and history so far of a phase, if any; `like` is a state of the right structure."""

    def save(self, name: str, state: State, history: PhaseHistory, over: bool) -> None:
        """Keep both, and whether the phase is over."""


def train(
    parameters: Any,
    loss: Callable[[Any, Any], Array],
    training: Any,
    held_out: Any,
    plan: Plan,
    *,
    progress: Progress | None = None,
    keeper: Keeper | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Any, PhaseHistory]:
    """Minimise a loss; returns the parameters with the best held-out loss, and what happened.

    Args:
        parameters: A pytree whose arrays lead with the axis of members; its floating-point arrays are trained.
        loss: Of one member's parameters and a batch (leading axis the rows) to a scalar.
        training: Pytree of arrays with a common leading axis, shared by all members; or a callable that gives
            one for each chunk (of the steps done so far), for data that are streamed.
        held_out: A pytree of arrays for validation.
        plan: Steps, rates, patience, seed.
        progress: Told after each chunk.
        keeper: Holds checkpoints.
        stop: Asked after each chunk whether to end here, with the best so far.
    """
    begin = time.perf_counter()
    trained, fixed = eqx.partition(_placed(parameters), eqx.is_inexact_array)
    held_out = _placed(held_out)
    resident = None if callable(training) else _placed(training)
    state, history = _begin(plan, loss, trained, fixed, held_out)
    found = keeper.load(plan.name, state) if keeper else None
    if found is not None:
        state, history = found
    before = history.seconds
    while history.stopped == "":
        data = _placed(training(history.done)) if resident is None else resident
        keys = _keys(plan.seed, len(state.best_loss), history.done)
        state, losses = _compiled(_steps)(plan.rule, loss, state, fixed, keys, data)
        losses = np.asarray(losses)
        _require_finite(losses, plan.name, history.done)
        current = _values(loss, state.trained, fixed, held_out)
        state = _keep_best(state, current, jax.device_put(history.done + CHUNK))
        history = history.extended(losses.mean(axis=0), np.asarray(current), np.asarray(state.best_step), CHUNK)
        stopped = _ended(history, plan) or ("interrupted" if stop() else "")
        history = history.at(before + time.perf_counter() - begin, stopped)
        if keeper:
            keeper.save(plan.name, state, history, stopped in ("steps", "patience"))
        if progress:
            progress.update(history, plan.steps)
    arrays, rest = eqx.partition(eqx.combine(state.best, fixed), eqx.is_array)
    return eqx.combine(jax.tree.map(lambda a: jax.device_put(np.asarray(a)), arrays), rest), history


def _ended(history: PhaseHistory, plan: Plan) -> str:
    if history.done >= plan.steps:
        return "steps"
    return "patience" if history.done - int(np.max(history.best_step)) >= plan.patience else ""


def evaluate(loss: Callable[[Any, Any], Array], parameters: Any, batch: Any) -> np.ndarray:
    """The loss of each member on a batch; costs no compilation where training has evaluated it on such a batch."""
    trained, fixed = eqx.partition(_placed(parameters), eqx.is_inexact_array)
    return np.asarray(_values(loss, trained, fixed, _placed(batch)))


def _begin(plan: Plan, loss: Any, trained: Any, fixed: Any, held_out: Any) -> tuple[State, PhaseHistory]:
    """Step zero: the starting point is the best so far."""
    losses = _values(loss, trained, fixed, held_out)
    optimiser = eqx.filter_jit(jax.vmap(plan.optimiser.init))(trained)
    state = State(trained, optimiser, trained, losses, jax.device_put(np.zeros(len(losses), dtype=int)))
    return state, PhaseHistory.begun(plan.name, np.asarray(losses), "" if plan.steps > 0 else "steps")


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled, once per loss, rule and shapes (a loss is a module's function, or equal by value)."""
    return eqx.filter_jit(function, compiler_options=_compiler_options())  # pyright: ignore[reportCallIssue]


@functools.cache
def _compiler_options() -> dict[str, Any]:
    """On few cores, LAPACK calls that XLA's scheduler has started side by side can wait for each other for ever.

    The paper's training needs LAPACK; its calls are kept in order where this XLA knows the option.
    """
    options = {"xla_cpu_enable_concurrency_optimized_scheduler": False}
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda x: x, compiler_options=options)(0.0)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


def _values(loss: Any, trained: Any, fixed: Any, batch: Any) -> Array:
    return _compiled(_every_value)(loss, trained, fixed, batch)


def _every_value(loss: Any, trained: Any, fixed: Any, batch: Any) -> Array:
    return _over_members(_value_of(loss), trained)(trained, fixed, batch)


def _value_of(loss: Any) -> Callable[[Any, Any, Any], Array]:
    return lambda trained, fixed, batch: loss(eqx.combine(trained, fixed), batch)


def _over_members(function: Callable[..., Any], trained: Any) -> Callable[..., Any]:
    """The function for every member: of their own arguments, and of a last one that they share.

    A single member is no batch of one: batching what it does was a fifth of what a small fit costs before it starts.
    """
    if jax.tree.leaves(trained)[0].shape[0] > 1:
        return lambda *own: eqx.filter_vmap(function, in_axes=(*[eqx.if_array(0)] * (len(own) - 1), None))(*own)

    def one(*own: Any) -> Any:
        *first, shared = own
        only = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, first)
        return jax.tree.map(lambda leaf: leaf[None], function(*only, shared))

    return one


def _steps(rule: Plan, loss: Any, state: State, fixed: Any, keys: Array, data: Any) -> tuple[State, Array]:
    """Steps under one scan; losses of shape (chunk, members)."""
    optimiser, value = rule.optimiser, _value_of(loss)

    def step(trained: Any, moments: Any, fixed: Any, key: Array, data: Any) -> tuple[Any, Any, Array]:
        batch = _spread(_sample(key, data, rule.batch_size))
        current, gradient = jax.value_and_grad(value)(trained, fixed, batch)
        updates, moments = optimiser.update(gradient, moments, trained)
        return optax.apply_updates(trained, updates), moments, current

    over_members = _over_members(step, state.trained)

    def body(carry: Any, keys: Array) -> tuple[Any, Array]:
        trained, moments, current = over_members(*carry, fixed, keys, data)
        return (trained, moments), current

    (trained, moments), losses = lax.scan(body, (state.trained, state.optimiser), keys)
    return state._replace(trained=trained, optimiser=moments), losses


def _keys(seed: int, members: int, done: int) -> Array:
    """Keys of shape (chunk, members) that depend on the step alone: a resumed run draws the same batches."""
    starts = [jax.random.fold_in(jax.random.key(seed + member), done) for member in range(members)]
    return jnp.stack([jax.random.split(start, CHUNK) for start in starts], axis=1)


@eqx.filter_jit
def _keep_best(state: State, losses: Array, done: Array) -> State:
    # A loss that is not a number compares as not better.
    better = losses < state.best_loss

    def choose(new: Array, old: Array) -> Array:
        return jnp.where(better.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

    return state._replace(
        best=jax.tree.map(choose, state.trained, state.best),
        best_loss=jnp.where(better, losses, state.best_loss),
        best_step=jnp.where(better, done, state.best_step),
    )


def _sample(key: Array, data: Any, size: int) -> Any:
    count = jax.tree.leaves(data)[0].shape[0]
    chosen = jax.random.randint(key, (min(size, count),), 0, count)
    return jax.tree.map(lambda leaf: leaf[chosen], data)


def _mesh() -> Mesh | None:
    devices = np.array(jax.devices())
    return Mesh(devices, ("rows",)) if len(devices) > 1 else None


def _placed(tree: Any) -> Any:
    """Arrays where training wants them: a copy on every device, where there are several."""
    mesh = _mesh()
    where = None if mesh is None else NamedSharding(mesh, PartitionSpec())

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray | jax.Array):
            return leaf
        return jax.device_put(leaf if mesh is None else np.asarray(leaf), where)

    return jax.tree.map(place, tree)


def _spread(batch: Any) -> Any:
    """The rows of a batch over all devices; their gradients are summed by XLA."""
    mesh = _mesh()
    if mesh is None or jax.tree.leaves(batch)[0].shape[0] % mesh.size:
        return batch
    return lax.with_sharding_constraint(batch, NamedSharding(mesh, PartitionSpec("rows")))


def _require_finite(losses: np.ndarray, name: str, done: int) -> None:
    """Losses of shape (chunk, members)."""
    if np.all(np.isfinite(losses)):
        return
    step, member = np.argwhere(~np.isfinite(losses))[0]
    which = f" in member {member}" if losses.shape[1] > 1 else ""
    raise TrainingError(
        f"Expected finite losses, got one that is not at step {done + step + 1} of phase '{name}'{which}. Likely"
        " causes: a learning rate too large for these data (lower learning_rate), states far outside the rest (check"
        " for outliers), or too small a rank for the size (raise rank)."
    )


def stack(members: list[Any]) -> Any:
    """Members' pytrees of one structure as one, with a leading axis on every array."""
    dynamic, static = zip(*(eqx.partition(member, eqx.is_array) for member in members), strict=True)
    return eqx.combine(jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *dynamic), static[0])


def unstack(stacked: Any, count: int) -> list[Any]:
    """The members of what `stack` made."""
    dynamic, static = eqx.partition(stacked, eqx.is_array)
    host = jax.tree.map(np.asarray, dynamic)
    return [eqx.combine(jax.tree.map(lambda leaf, m=m: jax.device_put(leaf[m]), host), static) for m in range(count)]
