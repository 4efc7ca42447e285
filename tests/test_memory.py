"""Programs do not fill the memory: they are dropped at a bound, and compiled again with the same answers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sosmarkov.core import programs

SCRIPT = Path(__file__).parent.parent / "bench" / "scripts" / "many_calls.py"

# Programs are dropped at every compilation: also within the call that compiles, and while another is traced.
DROPPED_ALWAYS = """
import jax, jax.numpy as jnp, numpy as np
from sosmarkov.core import programs
dropped = []
drop = programs.BOUND.drop
programs.BOUND.every, programs.BOUND.most = 1, -1e18
programs.BOUND.drop = lambda: (dropped.append(1), drop())
outer = jax.jit(lambda x: programs.jit_wide(lambda x: jnp.exp(-x))(x) + constant())
def constant():
    with jax.ensure_compile_time_eval():
        return jax.jit(lambda v: v[::-1] ** 2)(jnp.arange(3.0))
for _ in range(2):
    before = len(dropped)
    np.testing.assert_allclose(outer(jnp.arange(3.0)), np.exp(-np.arange(3)) + [4, 1, 0], rtol=1e-14)
    assert len(dropped) > before
"""


def python(*words, **environment):
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_dropped_is_compiled_again_with_the_same_answers():
    python("-c", DROPPED_ALWAYS)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not say what a process holds")
def test_many_different_calls_stay_below_the_bound():
    # One fit, and no second one, fills enough: without a bound these calls end at 940 MB, with it at 680 MB.
    found = json.loads(python(SCRIPT, "--calls", 16, SOSMARKOV_PROGRAM_MEMORY="100").splitlines()[-1])
    assert found["programs"] > 100
    assert found["peak_memory_mb"][-1] < 800


@pytest.fixture
def system(monkeypatch):
    """What the system says; to be changed by the test."""
    says = {"resident": 3e8, "mappings": 100, "dropped": 0}
    monkeypatch.setattr(programs, "_resident", lambda: says["resident"])
    monkeypatch.setattr(programs, "_mappings", lambda: says["mappings"])
    monkeypatch.setattr(programs.Bound, "drop", lambda self: says.update(dropped=says["dropped"] + 1))
    return says


def compile_some(bound, number=programs.Bound.every):
    for _ in range(number):
        bound(programs.Bound.compiled, 0.1, fun_name="f")
        bound("/jax/core/compile/jaxpr_trace_duration", 0.1)


def test_memory_counts_from_where_it_was_least(system):
    bound = programs.Bound(1e9)
    for resident, dropped in ((1.2e9, 0), (2e8, 0), (1.1e9, 0), (1.3e9, 1)):
        system["resident"] = resident
        compile_some(bound)
        assert system["dropped"] == dropped
    compile_some(bound, programs.Bound.every - 1)
    assert system["dropped"] == 1


def test_mappings_are_bounded_also_where_memory_is_not(system):
    bound = programs.Bound(0.0)
    system["resident"] = 9e9
    compile_some(bound)
    assert system["dropped"] == 0
    bound.mappings, system["mappings"] = 1000, 1001
    compile_some(bound)
    assert system["dropped"] == 1


def test_programs_are_counted_where_the_system_says_nothing(system):
    system["resident"] = None
    bound = programs.Bound(1e9)
    compile_some(bound, 128)
    assert system["dropped"] == 0
    compile_some(bound, 16)
    assert system["dropped"] == 1
