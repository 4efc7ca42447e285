"""Beliefs of every kind, solved once: what they say, and the quadrature to hold it against."""

import functools
import itertools
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import oracles
import sosmarkov as sm
from tables import COVER, EXHAUSTIVE, TRANSFORMS, make_parts, make_start

BLOCK = 4096
SHARES = np.array([0.03, 0.9])


class Room(NamedTuple):
    """Where a family lives in data space: the ends of quadrature, an interval within, a value to condition on."""

    low: float
    high: float
    interval: tuple[float, float]
    value: float
    panels: int


ROOMS = {
    "gaussian": Room(-12.0, 12.0, (-1.0, 0.8), 0.4, 12),
    "gaussian-full": Room(-13.0, 13.0, (-1.0, 0.8), 0.4, 13),
    "beta": Room(0.0, 1.0, (0.2, 0.7), 0.35, 0),
    "exponential": Room(-1.0, 2.0, (-0.5, 1.2), 0.7, 4),
    "monomial": Room(0.0, 1.5, (0.3, 1.1), 0.6, 0),
    "fourier": Room(-1.0, 2.0, (-0.5, 1.2), 0.7, 4),
    "standardize": Room(-16.0, 16.0, (-1.0, 1.2), 0.4, 16),
    "affine": Room(-16.0, 16.0, (-1.0, 1.2), 0.4, 16),
    "gaussian_cdf": Room(-14.0, 14.0, (-1.0, 1.2), 0.4, 14),
}
# Beta and the full Gaussian are asked in two dimensions under a transform below: they take longest to compile.
# Monomials differ from exponentials in their integrals alone, which have tests of their own.
ELSEWHERE = ("beta", "gaussian-full", "monomial")
CASES = [(*names, 2, "identity") for names in COVER if EXHAUSTIVE or names[0] not in ELSEWHERE]
CASES += [("gaussian", "kraus", 1, "identity")] + [("beta", "paired", 1, "identity")] * EXHAUSTIVE
CASES += [(*names, 1, "identity") for names in COVER if EXHAUSTIVE and names not in (COVER[0], ("beta", "paired"))]
CASES += [("gaussian", "kraus", 2, "standardize")] * EXHAUSTIVE
CASES += [
    ("gaussian", "kraus", 2, "affine"),
    ("gaussian-full", "kraus", 2, "affine"),
    ("beta", "paired", 2, "gaussian_cdf"),
]
every_case = pytest.mark.parametrize("names", CASES, ids=lambda names: "-".join(map(str, names)))


def powers_of(family, d, transform):
    """Every product of at most four coordinates; a few of them where tests of the family's integrals have the rest."""
    if EXHAUSTIVE or d == 1 or (family, transform) == ("gaussian", "identity"):
        return tuple(powers for powers in itertools.product(range(5), repeat=d) if sum(powers) <= 4)
    return (0, 1), (2, 1), (1, 3)


def conditioned(d):
    """Which coordinates to fix, of two."""
    return [] if d == 1 else [0, 1] if EXHAUSTIVE else [0]


def kept(d):
    """Which coordinates to ask marginals for."""
    return range(d) if EXHAUSTIVE else [d - 1]


def boxes_in(room, d):
    """Lower and upper ends: inside, open on one side or all, beyond the domain, empty."""
    low, high = room.interval
    boxes = [
        [(low, high), (low, high)],
        [(-np.inf, np.inf), (-np.inf, np.inf)],
        [(low, np.inf), (-np.inf, np.inf)],
        [(low, high), (-np.inf, high)],
        [(low, room.high + 5.0), (room.low - 5.0, high)],
        [(low, low), (low, high)],
        [(room.high + 3.0, room.high + 4.0), (low, high)],
    ]
    return np.moveaxis(np.array(boxes)[:, :d], -1, 0)


class Case(NamedTuple):
    """A belief, what it answers, and how to integrate its density."""

    names: tuple
    dim: int
    room: Room
    belief: sm.Belief
    earlier: sm.Belief
    found: dict

    def rule(self, *ends):
        """Nodes and weights on pieces between the ends of the domain, the interval and those given."""
        room = self.room
        cuts = sorted({room.low, *room.interval, room.high, *ends})
        pieces = [oracles.tanh_sinh(*pair, 80) for pair in itertools.pairwise(cuts)]
        if room.panels > 0:
            counts = [1 + int(room.panels * (b - a) / (room.high - room.low)) for a, b in itertools.pairwise(cuts)]
            pairs = zip(itertools.pairwise(cuts), counts, strict=True)
            pieces = [oracles.gauss_legendre(*pair, count, 22) for pair, count in pairs]
        return np.concatenate([nodes for nodes, _ in pieces]), np.concatenate([weights for _, weights in pieces])

    def grid(self, *ends):
        """Points and weights of a tensor rule."""
        return oracles.tensor(*self.rule(*ends), self.dim)

    def mass_between(self, lower, upper, *ends):
        """The density's integral over boxes that begin and end where pieces of the rule do."""
        points, weights = self.grid(*ends)
        mass = weights * density(self.belief, points)
        return np.array([mass @ np.all((points > a) & (points < b), axis=1) for a, b in zip(lower, upper, strict=True)])

    @property
    def exact_boxes(self):
        family, _, d, transform = self.names
        return transform != "affine" and (family != "gaussian-full" or d == 1)


@eqx.filter_jit
def evaluate(belief, points):
    return belief.prob(points)


def density(belief, points):
    """In blocks of one shape, so that one program serves all."""
    padded = np.concatenate([points, np.repeat(points[:1], -len(points) % BLOCK, axis=0)])
    blocks = padded.reshape(-1, BLOCK, points.shape[1])
    return np.concatenate([np.asarray(evaluate(belief, jnp.asarray(block))) for block in blocks])[: len(points)]


@eqx.filter_jit
def ask(parts, transform, start, boxes, nodes, value, powers, exact_boxes):
    """Everything one belief answers, from one program."""
    beliefs = sm.MarkovProcess(sm.Transition(*parts, transform), start).propagate(2)
    belief, d = beliefs[2], beliefs[2].dim
    found = {"moments": jnp.stack([belief.moment(row) for row in powers]), "mass": belief.mass()}
    if exact_boxes:
        found["boxes"] = belief.probability(*boxes)
        found["cdf"] = belief.cdf(boxes[1])
    given = [belief.condition({c: value}) for c in conditioned(d)]
    found["conditionals"] = [
        (belief.prob(lines_through(value, nodes)[c]), one.prob(nodes[:, None]), one.mass(), one.mean())
        for c, one in zip(conditioned(d), given, strict=True)
    ]
    found["marginals"] = []
    for c in kept(d):
        one = belief if d == 1 else belief.marginal([c])
        quantiles = one.quantile(SHARES)
        interval = one.probability(*(end[0, :1] for end in boxes))
        found["marginals"].append((quantiles, one.cdf(quantiles[:, None]), interval))
    return belief, beliefs[1], found


def lines_through(value, nodes):
    """Points with x_c = value, for each of two coordinates."""
    fixed = jnp.full_like(nodes, value)
    return jnp.stack([fixed, nodes], axis=-1), jnp.stack([nodes, fixed], axis=-1)


@functools.cache
def solve(names):
    family, coupling, d, transform = names
    room = ROOMS[family if transform == "identity" else transform]
    parts, start = make_parts(family, coupling, d, seed=2), make_start(family, coupling, d, seed=2)
    case = Case(names, d, room, None, None, {})
    belief, earlier, found = ask(
        parts,
        TRANSFORMS[transform](np.random.default_rng(3), d),
        start,
        [jnp.asarray(end) for end in boxes_in(room, d)],
        jnp.asarray(case.rule()[0]),
        room.value,
        powers_of(family, d, transform),
        case.exact_boxes,
    )
    return case._replace(belief=belief, earlier=earlier, found=found)
