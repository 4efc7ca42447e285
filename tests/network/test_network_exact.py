"""Everything a network says is exact, against quadrature of the formulas in plain NumPy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from network_cases import NODES, STRUCTURES, WEIGHTS, integrate, network_of, tables_of

import sosmarkov as sm
from oracles import gauss_legendre
from tables import EXHAUSTIVE

# The diamond has a fork and a collider in it: these alone are left to the exhaustive run.
CHECKED = ["chain", "diamond", *(["fork", "collider"] if EXHAUSTIVE else [])]
every_structure = pytest.mark.parametrize("structure", CHECKED)
# Where on the grid conditions are set.
AT = 68


@every_structure
def test_conditionals_and_joint_are_normalised(structure):
    report = network_of(structure).check()
    assert report.ok
    assert max(report.normalisation_error.values()) < 1e-12
    assert report.mass_error < 1e-12
    # Not only by its own account. That these are the network's conditionals is the next test.
    for table in tables_of(structure).values():
        np.testing.assert_allclose(table @ WEIGHTS, 1.0, atol=1e-10)


@every_structure
def test_the_joint_density_is_the_product_of_the_conditionals(structure):
    network = network_of(structure)
    rows = np.random.default_rng(2).integers(32, 96, size=(40, len(network.names)))
    expected = np.ones(len(rows))
    for name, table in tables_of(structure).items():
        where = [network.names.index(other) for other in (*STRUCTURES[structure][name], name)]
        expected = expected * table[tuple(rows[:, where].T)]
    np.testing.assert_allclose(network.prob(NODES[rows]), expected, rtol=1e-9)
    by_name = {name: NODES[rows[:, [i]]] for i, name in enumerate(network.names)}
    np.testing.assert_array_equal(network.log_prob(by_name), network.log_prob(NODES[rows]))


@every_structure
def test_marginals_match_quadrature(structure):
    network, tables = network_of(structure), tables_of(structure)
    first, last = network.names[0], network.names[-1]
    for name in (first, last):
        expected = integrate(structure, tables, name)
        np.testing.assert_allclose(network.marginal(name).prob(NODES[:, None]), expected, rtol=1e-8, atol=1e-10)
    expected = integrate(structure, tables, last + first)[::5, ::5]
    points = np.stack(np.meshgrid(NODES[::5], NODES[::5], indexing="ij"), axis=-1)
    np.testing.assert_allclose(network.marginal([last, first]).prob(points), expected, rtol=1e-8, atol=1e-10)


@every_structure
def test_conditionals_match_quadrature(structure):
    network = network_of(structure)
    wanted, fixed = network.names[0], network.names[-1]
    joint = integrate(structure, tables_of(structure), wanted + fixed)[:, AT]
    evidence = WEIGHTS @ joint
    found = network.condition({fixed: NODES[AT]})
    np.testing.assert_allclose(float(found.log_evidence), np.log(evidence), atol=1e-8)
    single = found.marginal(wanted)
    np.testing.assert_allclose(single.prob(NODES[:, None]), joint / evidence, rtol=1e-8, atol=1e-10)
    mean = WEIGHTS @ (NODES * joint) / evidence
    variance = WEIGHTS @ ((NODES - mean) ** 2 * joint) / evidence
    np.testing.assert_allclose(single.mean(), [mean], atol=1e-8)
    np.testing.assert_allclose(single.covariance(), [[variance]], atol=1e-8)


def integral_over(structure, lower, upper, fixed=""):
    """Of the joint density over a box of the first and last blocks; where one is fixed, of the other's conditional."""
    first, last = network_of(structure).names[0], network_of(structure).names[-1]
    nodes, weights = gauss_legendre(lower, upper, 1)
    boxed = [name for name in (first, last) if name != fixed]
    tables = tables_of(structure, dict.fromkeys(boxed, nodes))
    found = integrate(structure, tables, fixed, dict.fromkeys(boxed, weights))
    return found[AT] / integrate(structure, tables_of(structure), fixed)[AT] if fixed else found


@every_structure
def test_box_probabilities_match_quadrature(structure):
    network = network_of(structure)
    first, last = network.names[0], network.names[-1]
    found = network.probability({first: (-0.5, 1.2), last: ([[-0.5], [-np.inf], [0.3]], [[1.2], [np.inf], [0.3]])})
    assert found.shape == (3,)
    np.testing.assert_allclose(found[0], integral_over(structure, -0.5, 1.2), atol=1e-9)
    nodes, weights = gauss_legendre(-0.5, 1.2, 1)
    alone = weights @ integrate(structure, tables_of(structure, {first: nodes}), first)
    np.testing.assert_allclose(found[1:], [alone, 0.0], atol=1e-9)


def test_boxes_of_conditionals_and_of_arrays_match_quadrature():
    network = network_of("chain")
    given = network.condition({"c": NODES[AT]})
    expected = integral_over("chain", -0.5, 1.2, fixed="c")
    np.testing.assert_allclose(given.probability({"a": (-0.5, 1.2)}), expected, atol=1e-9)
    np.testing.assert_allclose(given.probability([-0.5, -np.inf], [1.2, np.inf]), expected, atol=1e-9)
    np.testing.assert_allclose(given.marginal("a").cdf([1.2]) - given.marginal("a").cdf([-0.5]), expected, atol=1e-9)


def test_moments_of_several_blocks_match_quadrature():
    tables = tables_of("diamond")
    belief = network_of("diamond").marginal(["d", "a", "b"])
    mean, covariance = belief.mean(), belief.covariance()
    for i, j in ((0, 1), (2, 0), (1, 2)):
        joint = integrate("diamond", tables, belief.names[i] + belief.names[j])
        means = [WEIGHTS @ (NODES * integrate("diamond", tables, belief.names[k])) for k in (i, j)]
        product = (WEIGHTS * NODES) @ joint @ (WEIGHTS * NODES)
        np.testing.assert_allclose(mean[np.array([i, j])], means, atol=1e-8)
        np.testing.assert_allclose(covariance[i, j], product - means[0] * means[1], atol=1e-8)


def test_a_far_point_has_a_finite_density_and_conditions_exactly():
    network = network_of("chain")
    assert np.all(np.isfinite(network.marginal("c").log_prob([[20.0], [-30.0]])))
    given = network.condition({"c": 20.0})
    np.testing.assert_allclose(given.marginal("a").prob(NODES[:, None]) @ WEIGHTS, 1.0, atol=1e-9)


def test_gradients_in_points_and_parameters_are_finite():
    network = network_of("pair")
    belief = network.condition({"b": 0.4})
    slope = jax.grad(belief.log_prob)(jnp.array([0.3]))
    up, down = belief.log_prob([[0.3 + 1e-5], [0.3 - 1e-5]])
    np.testing.assert_allclose(slope, [(up - down) / 2e-5], rtol=1e-6)

    def score(conditionals, x):
        again = sm.BayesianNetwork(dict(zip(network.names, conditionals, strict=True)))
        return again.condition({"b": x}).log_prob(jnp.array([0.1]))

    value, gradients = eqx.filter_jit(eqx.filter_value_and_grad(score))(network.conditionals, jnp.array([0.4]))
    np.testing.assert_allclose(value, belief.log_prob([0.1]), rtol=1e-10)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))
