"""Compiled loops full of normalisations finish on two cores (batched LAPACK calls there can wait for ever)."""

import subprocess
import sys

import pytest

SCRIPT = """
import os
os.sched_setaffinity(0, set(list(os.sched_getaffinity(0))[:2]))
import jax, jax.numpy as jnp, numpy as np, equinox as eqx
import sosmarkov as sm

rng = np.random.default_rng(0)
members, n, d = 3, {n}, {d}

def member():
    make = lambda: sm.FullGaussianBasis(rng.normal(size=(n, d)), np.tile(2.0 * np.eye(d), (n, 1, 1)))
    coupling = {coupling}
    return (make(), make(), coupling)

stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[member() for _ in range(members)])
y = jnp.asarray(rng.normal(size=(64, d)))

def loss(parts):
    transition = sm.Transition(*parts)
    return -jnp.mean(jax.vmap(transition.log_prob_model)(y[1:], y[:-1]))

@jax.jit
def train(parts):
    def step(parts, _):
        value, gradient = jax.vmap(jax.value_and_grad(loss))(parts)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, parts, gradient), value
    return jax.lax.scan(step, parts, None, length=5)

_, values = train(stacked)
assert values.shape == (5, members) and bool(jnp.all(jnp.isfinite(values))), values
print("finished")
"""


@pytest.mark.parametrize(
    ("n", "d", "coupling"),
    [
        (6, 12, "sm.Kraus(rng.normal(size=(n, n, 4)))"),
        (5, 4, "sm.Paired(np.eye(n) + 0.1 * np.tril(rng.normal(size=(n, n)), -1))"),
    ],
)
def test_an_ensemble_trains_inside_a_scan(n, d, coupling):
    code = SCRIPT.format(n=n, d=d, coupling=coupling)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "finished" in done.stdout
