"""A family, a coupling and a sensor that the wheel does not have: registered by one call, they are like its own."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import oracles
import sosmarkov as sm
import tables
from sosmarkov.cli import main
from sosmarkov.core.stored import ENTRIES
from sosmarkov.factor.background import require_share
from sosmarkov.factor.bases.family import levels
from sosmarkov.factor.bases.interval import IntervalBasis
from sosmarkov.factor.bases.product import log_and_sign, positive
from sosmarkov.factor.couplings import Kernel
from sosmarkov.factor.likelihood import Reading
from sosmarkov.learning.factor.initialise import wanted_start
from sosmarkov.report import write_report

QUICK = {"size": 3, "steps": 50, "objective": "transitions", "surrogate": False, "progress": False}


class MirrorBasis(IntervalBasis):
    """f(y) = prod_c (1 - y_c)^exponent_c on [0, 1]^d, exponents above zero."""

    family: ClassVar[str] = "mirror"

    log_exponent: Float[Array, "n d"]
    ends: tuple[tuple[float, ...], tuple[float, ...]] = eqx.field(static=True)

    def __init__(self, exponent):
        self.log_exponent = jnp.log(jnp.asarray(exponent, dtype=float))
        self.ends = ((0.0,) * self.dim, (1.0,) * self.dim)

    def __check_init__(self):
        if len(self.ends[0]) != self.dim:
            raise ValueError(f"Expected ends of {self.dim} coordinates.")

    @property
    def size(self):
        return self.log_exponent.shape[0]

    @property
    def dim(self):
        return self.log_exponent.shape[1]

    def inside(self, y):
        return jnp.all((y >= 0) & (y < 1), axis=-1)

    def natural(self):
        return jnp.exp(self.log_exponent)

    def multiply(self, left, right):
        return left + right

    def log_abs_1d(self, theta, y):
        return positive(theta * jnp.log1p(-jax.lax.broadcast_to_rank(y, theta.ndim)))

    def log_integral_1d(self, theta, lower, upper):
        e = theta + 1.0
        lower, upper = (jax.lax.broadcast_to_rank(end, e.ndim) for end in (lower, upper))
        return positive(e * jnp.log1p(-lower) + jnp.log1p(-(((1.0 - upper) / (1.0 - lower)) ** e)) - jnp.log(e))

    def log_moment_1d(self, theta, power, lower, upper):
        # y^p = sum_j binom(p, j) (-1)^j (1 - y)^j
        parts = [
            (-1) ** j * math.comb(power, j) * jnp.exp(self.log_integral_1d(theta + j, lower, upper)[0])
            for j in range(power + 1)
        ]
        return log_and_sign(sum(parts))

    def sample_1d(self, key, theta):
        return jax.random.beta(key, 1.0, theta + 1.0)

    def restrict(self, kept):
        return MirrorBasis(self.natural()[:, jnp.asarray(kept)])


def spread(size, dim, constant):
    return MirrorBasis(0.01 + 12.0 * levels(size, dim, constant))


MIRROR = sm.Family(MirrorBasis, "gaussian_cdf", spread=spread)
# The line of the test table.
ROW = tables.Family(
    lambda rng, n, d: MirrorBasis(0.1 + 5.0 * rng.random((n, d))),
    lambda basis, y: np.prod((1 - y[:, None]) ** np.exp(np.asarray(basis.log_exponent)), axis=-1),
    lambda: oracles.tanh_sinh(0.0, 1.0),
    lambda rng, count, d: rng.random((count, d)),
)


class Single(sm.Coupling):
    """f = (phi^T K psi)^2: a Kraus coupling of rank one."""

    name: ClassVar[str] = "single"
    order: ClassVar[int] = 2

    K: Float[Array, "n n"]
    raw_factor: Float[Array, "n n"]
    background: float = eqx.field(static=True)

    def __check_init__(self):
        require_share(self.background)

    @classmethod
    def start(cls, wanted, y, y_next):
        phi, psi, kraus = sm.Kraus.start(wanted._replace(rank=1), y, y_next)
        return phi, psi, cls(K=kraus.K[:, :, 0], raw_factor=kraus.raw_factor, background=kraus.background)

    def _kraus(self):
        empty = sm.Kraus(np.eye(len(self.K))[:, :, None], background=self.background)
        return eqx.tree_at(lambda k: (k.K, k.raw_factor), empty, (self.K[:, :, None], self.raw_factor))

    def check(self, phi, psi):
        self._kraus().check(phi, psi)

    def normalise(self, phi, E) -> Kernel:
        return self._kraus().normalise(phi, E)


class Nearby(sm.Sensor):
    """What is seen lies within a reach of the first coordinate: l(o | x) = 1 where |x_0 - o| < reach, else 0."""

    reach: float = eqx.field(static=True)

    @property
    def shape(self):
        return (1,)

    def reading(self, observation, basis, transform):
        def end(side):
            open_end = jnp.full(basis.dim, side * jnp.inf)
            read = open_end.at[0].set(observation[0] + side * self.reach)
            return transform.forward(jnp.where(jnp.isnan(read), open_end, read))

        return Reading(lower=end(-1)[0], upper=end(1)[0])


pytestmark = pytest.mark.usefixtures("nothing_of_ones_own_stays")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = np.zeros((60, 6, 1))
    for k in range(5):
        x[:, k + 1] = 0.8 * x[:, k] + 0.6 * rng.normal(size=(60, 1))
    return x


def comes_back(process, path):
    """Saved, and loaded with the same answers."""
    process.save(path)
    found = sm.load(path)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(process), strict=True):
        np.testing.assert_array_equal(one, other)
    assert jax.tree.structure(found.transition) == jax.tree.structure(process.transition)
    return found


def test_a_new_family_is_fitted_saved_loaded_reported_and_offered(data, tmp_path, capsys):
    assert sm.register(MIRROR) is MIRROR
    process = sm.fit(data, basis="mirror", background=0.0, **QUICK)
    assert process.history.chosen["basis"] == process.transition.phi.family == "mirror"
    assert process.check().normalisation_error < 1e-9
    path = tmp_path / "mirror.sosm"
    found = comes_back(process, path)
    write_report(found, tmp_path / "report.html", data=data)
    assert "mirror" in (tmp_path / "report.html").read_text()

    rows = [f"{i},{x:.17g}" for i, part in enumerate(data) for x in part[:, 0]]
    (tmp_path / "data.csv").write_text("\n".join(["run,x", *rows]))
    words = [str(tmp_path / "data.csv"), "-o", str(tmp_path / "again.sosm"), "--trajectory", "run", "--set"]
    options = [f"{name}={value}" for name, value in QUICK.items() if name != "progress"]
    assert main(["fit", *words, "basis=mirror", "background=0", *options]) == 0
    again = sm.load(tmp_path / "again.sosm")
    np.testing.assert_array_equal(again.transition.phi.log_exponent, process.transition.phi.log_exponent)
    capsys.readouterr()
    assert main(["fit", *words, "basis=miror"]) != 0
    said = capsys.readouterr()
    assert "mirror, got 'miror'. Did you mean 'mirror'?" in said.out + said.err

    del ENTRIES["MirrorBasis"]
    with pytest.raises(ValueError, match="'MirrorBasis'.* import the module that defines it first"):
        sm.load(path)
    with pytest.raises(ValueError, match=r"class MirrorBasis.*sosmarkov\.register"):
        process.save(path)


def test_the_line_of_the_table_holds_the_new_family_to_its_formula():
    basis = ROW.make(np.random.default_rng(0), 3, 1)
    nodes, weights = ROW.rule()
    values = ROW.function(basis, nodes[:, None])
    norm = np.sqrt(weights @ values**2)
    np.testing.assert_allclose(basis.gram(), values.T @ (weights[:, None] * values) / np.outer(norm, norm), rtol=1e-9)


def test_a_new_coupling_is_fitted_saved_loaded_and_reported(data, tmp_path):
    assert sm.register(Single) is Single
    process = sm.fit(data, coupling="single", **QUICK)
    assert type(process.transition.coupling) is Single
    assert process.check().normalisation_error < 1e-9
    assert "rank" not in process.history.chosen
    found = comes_back(process, tmp_path / "single.sosm")
    write_report(found, tmp_path / "report.html")
    assert "Single" in (tmp_path / "report.html").read_text()
    with pytest.raises(ValueError, match=r"coupling one of kraus, paired, linear, single, got 'singl'\. Did you mean"):
        sm.fit(data, coupling="singl", **QUICK)


def test_a_new_sensor_is_saved_and_loaded_with_its_process(tmp_path):
    sm.register(Nearby)
    plain = tables.make_process("gaussian", "kraus", 1, 0, n=3)
    process = sm.MarkovProcess(plain.transition, plain.initial, sensor=Nearby(0.5))
    found = comes_back(process, tmp_path / "m.sosm")
    assert found.sensor == Nearby(0.5)
    readings = np.array([[0.25], [np.nan], [-0.5]])
    seen = found.filter(readings)
    # A reading says between which ends the state lies, as rounded readings do.
    known = plain.filter(readings[:, 0:1], sensor=sm.IntervalSensor([0], width=1.0))
    np.testing.assert_allclose(seen.log_evidence, known.log_evidence, rtol=1e-12)


def test_the_names_of_others_are_refused():
    class Mine(MirrorBasis):
        family: ClassVar[str] = "beta"

    class Kraus(sm.Coupling):
        pass

    class OtherKraus(Single):
        name: ClassVar[str] = "kraus"

    with pytest.raises(ValueError, match="name of its own for Mine, got 'beta', the name of BetaBasis"):
        sm.register(sm.Family(Mine, "gaussian_cdf", spread=spread))
    with pytest.raises(ValueError, match="name of its own for OtherKraus, got 'kraus'"):
        sm.register(OtherKraus)
    Kraus.name = "krauss"
    with pytest.raises(ValueError, match=r"name of its own to store, got Kraus, which sosmarkov\.factor"):
        sm.register(Kraus)
    for wrong in (3, dict, "beta"):
        with pytest.raises(ValueError, match="Expected a Family, or a class"):
            sm.register(wrong)
    with pytest.raises(ValueError, match="space one of standardize, gaussian_cdf, got 'unit'"):
        sm.Family(MirrorBasis, "unit", spread=spread)
    with pytest.raises(ValueError, match="`local` or `spread` of family mirror"):
        sm.Family(MirrorBasis, "gaussian_cdf")


def test_a_definition_that_is_run_again_takes_the_place_of_the_older_one(tmp_path):
    sm.register(Nearby)
    again = type("Nearby", (Nearby,), {"__module__": Nearby.__module__, "__qualname__": Nearby.__qualname__})
    sm.register(again)
    assert ENTRIES["Nearby"].kind is again


def test_what_a_constructor_would_refuse_is_refused_in_a_file(tmp_path):
    sm.register(Single)
    basis = tables.FAMILIES["gaussian"].make(np.random.default_rng(0), 3, 1)
    process = sm.MarkovProcess(
        sm.Transition(basis, basis, Single(K=jnp.eye(3), raw_factor=jnp.eye(3), background=0.0)), [0.5]
    )
    broken = eqx.tree_at(lambda p: p.transition.coupling, process, object.__new__(Single))
    for name, value in {"K": jnp.eye(3), "raw_factor": jnp.eye(3), "background": 2.0}.items():
        object.__setattr__(broken.transition.coupling, name, value)
    with pytest.raises(ValueError, match="background share"):
        broken.save(tmp_path / "m.sosm")


def test_a_family_without_bumps_says_so_under_the_linear_coupling(data):
    sm.register(MIRROR)
    wanted = wanted_start("mirror", "linear", 3)
    with pytest.raises(ValueError, match="functions that look like components, got family mirror"):
        sm.Linear.start(wanted, data[:, 0], data[:, 1])
