"""Values of a wrong type at the public face: each must be a ValueError that says what was expected.

Run by test_wrong_types.py in a process of its own: the checks of annotations that all tests run under would be first.
"""

import sys
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parent))

import sosmarkov as sm
from tables import make_process

p = make_process("gaussian", "kraus", 1, seed=3)
key = jax.random.key(0)
CALLS = {
    "a sensor, such as": lambda: p.filter([[0.0]], sensor="x"),
    "a function from a reading": lambda: sm.FactorSensor(3, 1),
    "counted from 0": lambda: sm.GaussianSensor([None], 1.0),
    "one or more sensors": lambda: sm.MixtureSensor([1], [1.0]),
}

if __name__ == "__main__":
    for words, call in CALLS.items():
        try:
            call()
        except ValueError as error:
            if words not in str(error):
                sys.exit(f"expected '{words}', got: {error}")
            continue
        except Exception as error:
            sys.exit(f"expected a ValueError with '{words}', got {type(error).__name__}: {error}")
        sys.exit(f"expected a ValueError with '{words}', got an answer")
