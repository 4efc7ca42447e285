"""Models of every kind a user can have, small.

A file is asked to give back what it was given. So the parts that follow from others, which are dear to compile, are
drawn at random here, in the shapes their constructors give them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import sosmarkov as sm
import tables
from sosmarkov.data.history import PhaseHistory
from sosmarkov.factor.beliefs import ProductBelief


def sketched(make, *parts):
    """make(*parts), with random numbers for all that is computed from the parts."""
    rng = np.random.default_rng(0)

    def draw(leaf):
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        return jnp.asarray((1.0 + rng.random(leaf.shape)).astype(leaf.dtype))

    return jax.tree.map(draw, eqx.filter_eval_shape(make, *parts))


def dynamics(kind, phi, psi, coupling, transform):
    found = sketched(kind, phi, psi, coupling, transform)
    own = (phi, psi, coupling, transform)
    return eqx.tree_at(lambda t: (t.phi, t.psi, t.coupling, t.transform), found, own)


def history():
    """What training leaves, with what is hard to write: NaN, tuples, NumPy's numbers."""
    training, held_out = np.array([[np.nan], [1.25]]), np.array([[2.0], [1.0]])
    phase = PhaseHistory(
        "transitions", np.array([0, 10]), training, held_out, np.array([10]), 0.1, "patience", ("cpu (x)",)
    )
    chosen = {"basis": "gaussian", "size": np.int64(4), "rank": (2, 3), "surrogate": False, "horizon": None}
    return sm.History((phase,), chosen, {"transitions": -0.3, "beliefs": float("-inf")})


def process(family="gaussian", coupling="kraus", dim=1, transform="identity", **options):
    rng = np.random.default_rng(0)
    transition = dynamics(
        sm.Transition, *tables.make_parts(family, coupling, dim, 0, n=3), tables.TRANSFORMS[transform](rng, dim)
    )
    h = tables.make_start(family, coupling, dim, 0)
    initial = ProductBelief(g=transition.g, h=h, transform=transition.transform)
    return sm.MarkovProcess(transition, initial, **options)


def driven(features):
    rng = np.random.default_rng(0)
    basis = tables.FAMILIES["gaussian"].make(rng, 3, 1)
    coupling = sm.Driven(features, rng.normal(size=(features.count, 3, 3, 2)), background=0.01)
    return sm.MarkovProcess(dynamics(sm.DrivenTransition, basis, basis, coupling, sm.Identity(1)), [0.25])


def with_sensor():
    transition, zeta = process().transition, tables.FAMILIES["gaussian"].make(np.random.default_rng(0), 2, 1)
    scale = sm.Standardize([1.0], [2.0])
    sensor = sketched(sm.LearnedSensor, zeta, scale)
    sensor = eqx.tree_at(lambda s: (s.zeta, s.transform), sensor, (zeta, scale))
    h = sm.SquaredForm(transition.phi, np.ones((3, 4)))
    initial = ProductBelief(g=transition.g, h=h, transform=transition.transform)
    return sm.MarkovProcess(transition, initial, sensor=sensor, history=history(), columns=["position"])


def with_known_sensors():
    read = [
        sm.GaussianSensor([0], 0.5, gain=2.0),
        sm.LinearSensor([[2.0]], 0.25, offset=1.0),
        sm.IntervalSensor([0], width=1.0),
    ]
    plain = process()
    return sm.MarkovProcess(plain.transition, plain.initial, sensor=sm.MixtureSensor(read, [1.0, 2.0, 1.0]))


def from_mixture():
    plain = process()
    ends = jnp.array([-jnp.inf]), jnp.array([0.5])
    seen = ProductBelief(g=plain.initial.g, h=plain.initial.h, transform=plain.transform, lower=ends[0], upper=ends[1])
    mixed = sm.MixtureBelief([plain.initial, seen, sm.KnownState([0.5])], [1.0, 2.0, 4.0])
    return sm.MarkovProcess(plain.transition, mixed)


def ensemble():
    return sm.Ensemble([process(), process(history=history())], history=history())


def network():
    rng = np.random.default_rng(0)
    basis = [tables.FAMILIES["gaussian"].make(rng, 2, 1) for _ in range(3)]
    first = sm.Conditional(basis[0], rng.normal(size=(2, 2)))
    second = sm.Conditional(basis[1], rng.normal(size=(2, 2, 2)), {"cause": basis[2]}, background=0.01)
    scale = {"effect": sm.Standardize([1.0], [2.0])}
    return sm.BayesianNetwork({"cause": first, "effect": second}, scale, history=history())


MODELS = {
    **{family: lambda family=family, c=c: process(family, c) for family, c in tables.COVER},
    "affine": lambda: process(dim=2, transform="affine"),
    "gaussian_cdf": lambda: process("beta", "paired", transform="gaussian_cdf"),
    "chain": lambda: process("beta", "paired", transform="chain"),
    "bumps": lambda: driven(sm.Bumps([[0.0], [1.0]], [0.5])),
    "network features": lambda: driven(sm.Network([0.0], [1.0], 3, 4, jax.random.key(0))),
    "phases": lambda: driven(sm.Phases(2)),
    "shared phases": lambda: driven(sm.Phases(4, 2)),
    "known sensors": with_known_sensors,
    "sensor": with_sensor,
    "mixture": from_mixture,
    "ensemble": ensemble,
    "network": network,
}
