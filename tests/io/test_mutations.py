"""Damaged files, thousands of them: each is refused by a ValueError, or gives the very model that was saved."""

import copy
import hashlib
import json

import jax
import numpy as np
import pytest
from model_cases import MODELS

import sosmarkov as sm
import tables
from sosmarkov.core.files import MAGIC, load_arrays, save_arrays

DAMAGED = 20_000 if tables.EXHAUSTIVE else 2_000
FORGED = 2_000 if tables.EXHAUSTIVE else 100


def flipped(rng, content):
    """One to three bits the other way."""
    for _ in range(rng.integers(1, 4)):
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))


def cut(rng, content):
    """The end is missing."""
    del content[rng.integers(len(content)) :]


def inserted(rng, content):
    """Bytes that do not belong there."""
    at = int(rng.integers(len(content) + 1))
    content[at:at] = rng.bytes(int(rng.integers(1, 20)))


def removed(rng, content):
    """Bytes that are gone."""
    at = int(rng.integers(len(content)))
    del content[at : at + int(rng.integers(1, 20))]


def swapped(rng, content):
    """Two blocks in each other's place."""
    size = int(rng.integers(1, 200))
    a, b = sorted(rng.integers(0, len(content) - size, 2))
    first, second = content[a : a + size], content[b : b + size]
    content[a : a + size] = second
    content[b : b + size] = first


def overwritten(rng, content):
    """A block of zeros, as a disk may leave it."""
    at, size = int(rng.integers(len(content))), int(rng.integers(1, 512))
    content[at : at + size] = bytes(len(content[at : at + size]))


MUTATIONS = [flipped, cut, inserted, removed, swapped, overwritten]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path, model = tmp_path_factory.mktemp("models") / "model.sosm", MODELS["sensor"]()
    model.save(path)
    return model, path.read_bytes(), load_arrays(path)


def test_damaged_files_are_refused_or_bit_identical(stored, tmp_path):
    rng, path, (_, content, _) = np.random.default_rng(0), tmp_path / "m", stored
    refused = 0
    for number in range(DAMAGED):
        damaged = bytearray(content)
        MUTATIONS[number % len(MUTATIONS)](rng, damaged)
        path.write_bytes(damaged)
        if bytes(damaged) == content:
            continue
        with pytest.raises(ValueError, match="^Expected"):
            sm.load(path)
        refused += 1
    assert refused > 0.9 * DAMAGED


def test_the_checksum_covers_every_byte(stored, tmp_path):
    content, path = stored[1], tmp_path / "m"
    for at in range(0, len(content), 1 if tables.EXHAUSTIVE else 17):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(ValueError, match="^Expected"):
            sm.load(path)


def test_damage_under_a_right_checksum_is_a_value_error_or_a_model(stored, tmp_path):
    """What a hand that knows the format could write: the block is damaged, its checksum made to fit."""
    rng, path, (_, content, _) = np.random.default_rng(1), tmp_path / "m", stored
    start = len(MAGIC) + 32
    # The header and the tables of the block: arrays may hold any numbers.
    length = 8 + int.from_bytes(content[start : start + 8], "little")
    for number in range(FORGED):
        head = bytearray(content[start : start + length])
        MUTATIONS[number % len(MUTATIONS)](rng, head)
        block = bytes(head) + content[start + length :]
        path.write_bytes(MAGIC + hashlib.sha256(block).digest() + block)
        loads_or_refuses(path)


def places(node):
    """Every (container, key) in a tree of JSON."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, part in items:
        yield node, key
        yield from places(part)


def test_shuffled_trees_are_a_value_error_or_a_model(stored, tmp_path):
    """Trees that are sound JSON, with a part of the tree where another belongs, or a value no class expects."""
    rng, (_, _, (arrays, header)) = np.random.default_rng(2), stored
    values = [None, True, -1, 0, 10**30, 1.5, 1e308, "", "Kraus", [], {}, {"array": "0"}, {"tuple": []}]
    built = 0
    for _ in range(FORGED):
        changed = json.loads(json.dumps(header))
        found = list(places(changed["tree"]))
        node, key = found[rng.integers(len(found))]
        other, at = found[rng.integers(len(found))]
        pick = int(rng.integers(2 * len(values)))
        node[key] = values[pick] if pick < len(values) else copy.deepcopy(other[at])
        save_arrays(tmp_path / "m", arrays, changed)
        built += loads_or_refuses(tmp_path / "m")
    assert built < 0.5 * FORGED


def loads_or_refuses(path):
    try:
        model = sm.load(path)
    except ValueError:
        return False
    assert isinstance(model, sm.MarkovProcess)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(model.transition))
    return True
