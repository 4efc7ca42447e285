"""Double precision, switched on in one place.

Everything in this library promises errors near 1e-12, which float32 cannot hold, so importing
`sosmarkov` turns JAX's 64-bit mode on. `JAX_ENABLE_X64=0` in the environment keeps it off; then
one warning says what to expect.
"""

import os
import sys
import warnings

_OFF = {"0", "false", "off", "no", "n", "f"}


def switch_on() -> None:
    """Turn JAX's 64-bit mode on, unless the environment says otherwise.

    JAX itself is not imported here, so that a command's `--help` stays quick: before JAX is
    loaded the environment variable it reads is set; afterwards its configuration is updated.
    """
    if os.environ.get("JAX_ENABLE_X64", "").strip().lower() in _OFF:
        warnings.warn(
            "JAX_ENABLE_X64 is off: sosmarkov computes in float32. Expect normalisation errors near"
            " 1e-4 instead of 1e-12, and overlaps that under- or overflow. Unset the variable to get"
            " double precision.",
            RuntimeWarning,
            stacklevel=3,
        )
    elif "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)
    else:
        os.environ["JAX_ENABLE_X64"] = "1"
