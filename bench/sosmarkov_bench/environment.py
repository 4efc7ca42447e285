"""What figures depend on, to be stored beside them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

import sosmarkov
from sosmarkov.core.files import write_atomic


def environment() -> dict[str, Any]:
    """Versions, device and the commit of the working folder, with a plus where it had changes."""
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        # What was not committed is not in the commit.
        commit += "+" if _git("status", "--porcelain", "--untracked-files=no") else ""
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


def write_results(path: Path, content: dict[str, Any], seed: int) -> dict[str, Any]:
    """Write what was measured, with what it depends on; returns both together. Folders are made."""
    content = {"environment": environment() | {"seed": seed}} | content
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(content, indent=1).encode())
    return content


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.strip()
