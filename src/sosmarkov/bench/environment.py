"""What figures depend on, to be stored beside them."""

from __future__ import annotations

import os
import platform
import subprocess
from typing import Any

import equinox as eqx
import jax

import sosmarkov


def environment() -> dict[str, Any]:
    """Versions, device and the commit of the working folder."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        # A copy without its history is told by whoever made it.
        commit = os.environ.get("SOSMARKOV_COMMIT", "unknown")
    device = jax.devices()[0]
    return {
        "sosmarkov": sosmarkov.__version__,
        "jax": jax.__version__,
        "equinox": eqx.__version__,
        "python": platform.python_version(),
        "device": f"{device.platform} ({device.device_kind})",
        "cores": os.cpu_count(),
        "commit": commit,
    }
