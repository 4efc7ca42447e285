"""Files of arrays: written whole or not at all, checked when read, never executed.

Layout: eight bytes of magic, the SHA-256 of everything after it (32 bytes), then a safetensors block whose
metadata holds one JSON text.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as _load
from safetensors.numpy import save as _save

MAGIC = b"SOSMARK1"
_DIGEST = 32


def write_atomic(path: str | os.PathLike[str], content: bytes) -> None:
    """Write to a temporary name in the same folder, flush to disk, rename: the old file or the new, never half."""
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"Expected an existing folder to write {path.name} to, got {path.parent}. Create it first.")
    # With the rights any new file has: `tempfile` would let nobody else read it.
    name = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last, where the system lets folders be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save_arrays(path: str | os.PathLike[str], arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    """Write named arrays and a JSON header as one checked file."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    # Zero-dimensional arrays come back as such: ascontiguousarray makes them one-dimensional.
    shaped = {name: contiguous[name].reshape(np.shape(array)) for name, array in arrays.items()}
    block = _save(shaped, metadata={"header": json.dumps(header, separators=(",", ":"))})
    write_atomic(path, MAGIC + hashlib.sha256(block).digest() + block)


def load_arrays(path: str | os.PathLike[str], what: str = "file") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_arrays` wrote; a damaged or foreign file is refused.

    Args:
        path: The file.
        what: What the caller expects it to be, for messages.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"Expected a readable {what}, got {path}: {error.strerror or error}.") from error
    start = len(MAGIC) + _DIGEST
    if not content.startswith(MAGIC):
        raise ValueError(f"Expected a {what} written by sosmarkov, got {path}, which does not begin like one.")
    digest, block = content[len(MAGIC) : start], content[start:]
    if hashlib.sha256(block).digest() != digest:
        raise ValueError(f"Expected an undamaged {what}, got {path}, whose checksum does not match its content.")
    try:
        arrays = _load(block)
        length = int.from_bytes(block[:8], "little")
        header = json.loads(json.loads(block[8 : 8 + length])["__metadata__"]["header"])
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(
            f"Expected a {what} written by sosmarkov, got {path}, which cannot be read: {error}."
        ) from error
    if not isinstance(header, dict):
        raise ValueError(f"Expected a {what} written by sosmarkov, got {path}, whose header is no mapping.")
    return arrays, header
