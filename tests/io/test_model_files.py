"""What is saved comes back, bit for bit; what is no model file is refused."""

import ast
import copy
import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest
from make_frozen import KINDS, asked, own_numbers
from model_cases import MODELS, driven, process
from safetensors.numpy import save

import sosmarkov as sm
from sosmarkov.core.files import MAGIC, load_arrays, save_arrays
from sosmarkov.factor.couplings import Features
from sosmarkov.io.model import describe

HERE = Path(__file__).parent


def bits(model):
    return [
        (leaf.dtype, leaf.shape, np.asarray(leaf).tobytes())
        for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_array))
    ]


def structure(model):
    """All that is no number: classes, static fields, names. Histories are compared by what they say."""

    def bare(one):
        one = copy.copy(one)
        object.__setattr__(one, "history", None)
        if isinstance(one, sm.Ensemble):
            object.__setattr__(one, "members", tuple(map(bare, one.members)))
        return one

    return jax.tree.structure(bare(model))


@pytest.mark.parametrize("name", MODELS)
def test_what_is_saved_comes_back_bit_for_bit(name, tmp_path):
    model, path = MODELS[name](), tmp_path / "model.sosm"
    model.save(path)
    found = sm.load(path)
    assert type(found) is type(model)
    assert bits(found) == bits(model)
    assert str(found.history) == str(model.history)
    assert structure(found) == structure(model)
    # Written again it is the same file: nothing was lost that only the first writing saw.
    found.save(tmp_path / "again.sosm")
    assert (tmp_path / "again.sosm").read_bytes() == path.read_bytes()


def test_a_history_keeps_its_curves_and_choices(tmp_path):
    model = MODELS["sensor"]()
    model.save(tmp_path / "m")
    found = sm.load(tmp_path / "m")
    (one,), (other,) = model.history.phases, found.history.phases
    for curve in ("steps", "training", "held_out", "best_step"):
        np.testing.assert_array_equal(getattr(other, curve), getattr(one, curve))
    assert other.devices == one.devices
    assert found.history.chosen == model.history.chosen
    assert found.history.scores == model.history.scores
    assert found.columns == ("position",)


def test_files_of_this_format_keep_loading():
    answers = json.loads((HERE / "frozen.json").read_text())
    found = asked(sm.load(HERE / "frozen_process.sosm"))
    np.testing.assert_allclose(found.pop("log_prob"), answers["process"].pop("log_prob"), rtol=1e-12)
    np.testing.assert_allclose(found.pop("mean"), answers["process"].pop("mean"), rtol=1e-12)
    assert found == answers["process"]
    for name in KINDS:
        kinds = sm.load(HERE / f"frozen_{name}.sosm")
        np.testing.assert_allclose([own_numbers(kind) for kind in kinds], answers[name], rtol=1e-12)
    network = sm.load(HERE / "frozen_network.sosm")
    np.testing.assert_allclose(network.log_prob([[-1.0, 0.25]]), answers["network"], rtol=1e-12)


def test_every_class_with_storage_is_known_to_whoever_only_loads():
    nodes = [node for path in Path(sm.__file__).parent.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    decorated = {one.name for one in classes if any(ast.unparse(d).startswith("stored(") for d in one.decorator_list)}
    code = "import json, sosmarkov.io.model as m; print(json.dumps(sorted(m.ENTRIES)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert set(json.loads(done.stdout)) == decorated
    assert len(decorated) > 30


def test_a_file_says_what_it_is():
    found = describe(HERE / "frozen_network.sosm")
    assert found["format"] == 1
    assert found["kind"] == "network"
    assert set(found["versions"]) == {"sosmarkov", "python", "jax", "equinox", "numpy"}


def test_columns_have_names():
    assert process(dim=2, transform="affine").columns == ("x0", "x1")
    named = process(columns=["speed"])
    assert named.with_columns(["pace"]).columns == ("pace",)
    ensemble = sm.Ensemble([named, named])
    assert ensemble.columns == ("speed",)
    assert ensemble.with_columns(["pace"])[1].columns == ("pace",)
    for wrong in (["a", "b"], [""], []):
        with pytest.raises(ValueError, match="different names"):
            named.with_columns(wrong)
    with pytest.raises(ValueError, match="same names"):
        sm.Ensemble([named, process()])


# --- what cannot be saved --------------------------------------------------------------------------


class Cubic(Features):
    """Weights of a user's own."""

    scale: jax.Array

    dim = 1
    count = 1

    def __call__(self, u):
        return u**3


class Stretched(sm.Standardize):
    """A transform of a user's own."""


def test_parts_of_a_users_own_are_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="got an object of class Cubic"):
        driven(Cubic(jax.numpy.ones(1))).save(tmp_path / "m")
    stretched = eqx.tree_at(lambda p: p.transition.transform, process(), Stretched([0.0], [1.0]))
    with pytest.raises(ValueError, match="class Stretched"):
        stretched.save(tmp_path / "m")
    with pytest.raises(ValueError, match="class function"):
        process(history=lambda: None).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_only_whole_models_are_saved(tmp_path):
    with pytest.raises(ValueError, match="a process, an ensemble or a network"):
        sm.save(process().transition, tmp_path / "m")
    with pytest.raises(ValueError, match="being traced"):
        jax.eval_shape(lambda model: sm.save(model, tmp_path / "m"), process())
    changed = eqx.tree_at(
        lambda p: p.transition.coupling.features.net.activation, MODELS["network features"](), jax.nn.relu
    )
    with pytest.raises(ValueError, match="as its constructors make it"):
        changed.save(tmp_path / "m")
    with pytest.raises(ValueError, match="existing folder"):
        process().save(tmp_path / "nowhere" / "m")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.sosm"
    process().save(path)
    before = path.read_bytes()
    # As readable for others as any file written here.
    (tmp_path / "any").touch()
    assert path.stat().st_mode == (tmp_path / "any").stat().st_mode
    (tmp_path / "any").unlink()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        process(columns=["other"]).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# --- what cannot be loaded -------------------------------------------------------------------------


class Malice:
    """Unpickled, it would write a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_is_refused_and_not_run(tmp_path):
    payload = pickle.dumps(Malice(tmp_path / "run"))
    whole = MAGIC + hashlib.sha256(payload).digest() + payload
    for content in (payload, MAGIC + payload, whole):
        (tmp_path / "m").write_bytes(content)
        with pytest.raises(ValueError, match="Expected"):
            sm.load(tmp_path / "m")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", MAGIC, MAGIC + bytes(40), b"{}"])
def test_foreign_files_are_refused(content, tmp_path):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ValueError, match="model file"):
        sm.load(tmp_path / "m")


def test_missing_files_folders_and_checkpoints_are_refused(tmp_path):
    with pytest.raises(ValueError, match="readable model file"):
        sm.load(tmp_path / "none")
    with pytest.raises(ValueError, match="readable model file"):
        sm.load(tmp_path)
    save_arrays(tmp_path / "c", {}, {"format": 1, "identity": "", "phases": {}})
    with pytest.raises(ValueError, match="a checkpoint of training"):
        sm.load(tmp_path / "c")


def _set(*keys, to):
    def change(header):
        node = header
        for key in keys[:-1]:
            node = node[key]
        node[keys[-1]] = to

    return change


PROCESS = ("tree", "fields")
TRANSITION = (*PROCESS, "transition", "fields")
NONSENSE = {
    "newer version": (_set("format", to=2), "format 2, written by a newer version"),
    "no format": (_set("format", to="1"), "number of its format"),
    "strange kind": (_set("kind", to="transition"), "header of a model file"),
    "kind that is no text": (_set("kind", to=[]), "header of a model file"),
    "another kind": (_set("kind", to="network"), "a network in the file, got MarkovProcess"),
    "more entries": (_set("more", to=1), "header of a model file"),
    "no tree": (_set("tree", to=None), "a process in the file"),
    "a class by path": (_set("tree", "class", to="os.system"), "class this version knows, got 'os.system'"),
    "a class that is no text": (_set("tree", "class", to=["MarkovProcess"]), "class this version knows"),
    "a class elsewhere": (_set(*TRANSITION, "phi", "class", to="Identity"), "fields"),
    "no fields": (_set("tree", "fields", to=[]), "Expected the fields"),
    "a field too many": (_set("tree", "fields", "more", to=1), "Expected the fields"),
    "columns that are numbers": (_set(*PROCESS, "columns", to={"tuple": [1]}), "columns of MarkovProcess"),
    "too many columns": (_set(*PROCESS, "columns", to={"tuple": ["a", "b"]}), "1 different names"),
    "a history of another kind": (_set(*PROCESS, "history", to=3), "a history of training"),
    "an initial belief that is none": (_set(*PROCESS, "initial", to=0.5), "initial of MarkovProcess"),
    "a share beyond one": (_set(*TRANSITION, "coupling", "fields", "background", to=1.5), "background share"),
    "a share that is a truth": (_set(*TRANSITION, "coupling", "fields", "background", to=True), "background of Kraus"),
    "an array that is not there": (_set(*TRANSITION, "phi", "fields", "mean", to={"array": "999"}), "an array of"),
    "an array of another shape": (_set(*TRANSITION, "coupling", "fields", "K", to={"array": "0"}), "K of Kraus"),
    "numbers without arrays": (_set(*TRANSITION, "phi", "fields", "mean", to=1.0), "mean of GaussianBasis"),
    "a transform of more dimensions": (_set(*TRANSITION, "transform", "fields", "length", to=10**12), "transform of 1"),
    "a transform of none": (_set(*TRANSITION, "transform", "fields", "length", to=0), "length"),
    "no derived numbers": (_set(*PROCESS, "transition", "derived", to=[]), "shapes its parameters imply"),
    "derived text": (_set(*PROCESS, "transition", "derived", to="abc"), "list of derived"),
    "an unknown kind of part": (_set(*PROCESS, "history", to={"call": "exit"}), "known kind of part"),
    "two kinds in one part": (_set(*PROCESS, "history", to={"list": [], "dict": {}}), "one entry"),
    "a number by name": (_set(*PROCESS, "history", to={"number": "seven"}), "inf, -inf or nan"),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.sosm"
    process().save(path)
    return load_arrays(path)


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_with_a_right_checksum_is_refused(name, stored, tmp_path):
    change, message = NONSENSE[name]
    arrays, header = stored[0], json.loads(json.dumps(stored[1]))
    change(header)
    save_arrays(tmp_path / "m", arrays, header)
    with pytest.raises(ValueError, match=message):
        sm.load(tmp_path / "m")


@pytest.mark.parametrize("depth", [300, 100_000])
def test_a_bottomless_tree_is_refused(depth, tmp_path):
    tree = '{"list": [' * depth + "]}" * depth
    text = f'{{"format": 1, "kind": "process", "versions": {{}}, "tree": {tree}}}'
    block = save({}, metadata={"header": text})
    (tmp_path / "m").write_bytes(MAGIC + hashlib.sha256(block).digest() + block)
    with pytest.raises(ValueError, match="Expected"):
        sm.load(tmp_path / "m")


def test_arrays_that_lie_are_refused(stored, tmp_path):
    arrays, header = stored
    k = header["tree"]["fields"]["transition"]["fields"]["coupling"]["fields"]["K"]["array"]
    for wrong, message in [
        (np.full_like(arrays[k], np.nan), "finite numbers in K"),
        (arrays[k].astype(np.int64), "K of Kraus"),
        (arrays[k][:0], "K of Kraus|numbers in K"),
        (arrays[k][None], "K of Kraus"),
        (arrays[k].astype(np.float32), "double precision"),
    ]:
        save_arrays(tmp_path / "m", arrays | {k: wrong}, header)
        with pytest.raises(ValueError, match=message):
            sm.load(tmp_path / "m")
    save_arrays(tmp_path / "m", arrays | {"more": np.zeros(1)}, header)
    with pytest.raises(ValueError, match="every array of the file"):
        sm.load(tmp_path / "m")
    belief = header["tree"]["fields"]["initial"]["fields"]["g"]["fields"]["matrix"]["array"]
    other = json.loads(json.dumps(header))
    other["tree"]["fields"]["initial"]["fields"]["g"]["fields"]["matrix"]["array"] = "other"
    save_arrays(tmp_path / "m", arrays | {"other": 2.0 * arrays[belief]}, other)
    with pytest.raises(ValueError, match="a belief of this process"):
        sm.load(tmp_path / "m")
