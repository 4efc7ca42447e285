"""The most memory that a process has held."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def forget_peak_memory() -> None:
    """Begin the peak anew, where the system lets a process do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass


def peak_memory_mb() -> float:
    """Most memory held since then (or since the process began), in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    # In kilobytes, but for macOS, which counts bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)
