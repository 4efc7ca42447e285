"""Importing the package switches to double precision, in one place, and says when it may not."""

import os
import subprocess
import sys

import pytest


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {key: value for key, value in os.environ.items() if key != "JAX_ENABLE_X64"}
    command = [sys.executable, "-W", "always", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env={**clean, **environment}, check=False)


@pytest.mark.parametrize("order", ["import sosmarkov, jax", "import jax, sosmarkov"])
def test_import_switches_on(order):
    done = run(f"{order}; print(jax.numpy.zeros(1).dtype)")
    assert done.stdout.strip() == "float64", done.stderr


def test_environment_keeps_it_off_with_a_warning():
    done = run("import sosmarkov, jax; print(jax.numpy.zeros(1).dtype)", JAX_ENABLE_X64="0")
    assert done.stdout.strip() == "float32"
    assert "float32" in done.stderr


def test_import_alone_does_not_load_jax():
    done = run("import sosmarkov, sys; print('jax' in sys.modules, 'fit' in dir(sosmarkov) or True)")
    assert done.stdout.startswith("False")
