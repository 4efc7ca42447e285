"""Every kernel against sums written out: f as a table over two functions of x and two of x', entry by entry in loops.

A new kernel costs one maker and one line of `KERNELS`.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import sosmarkov as sm
from sosmarkov.core.numerics import pack
from sosmarkov.factor.background import Background
from sosmarkov.factor.couplings.operators import whitened

N, M, R, J, Z = 3, 4, 2, 3, 2
Y, Y_NEXT, U, READING = np.array([0.3]), np.array([-0.4]), np.array([0.2]), np.array([0.5])


class Case(NamedTuple):
    """f[i, k, j, l] over phi_i phi_k psi_j psi_l without a background, and what the library says of it.

    Attributes:
        table: f without its background.
        A: g = phi^T A phi.
        phi: At Y, shape (n,).
        psi: At Y_NEXT, shape (m,).
        background: The share, the mass, and how much of the broad density is seen.
        push: Coefficients over psi from P = v v^T.
        pull: Coefficients over phi from the values of M over unique pairs, or None.
        known: Values at Y_NEXT of f(Y, .) / g(Y).
        log_value: log f(Y, Y_NEXT).
        gains: Of an M, or None where it makes no sense.
    """

    table: np.ndarray
    A: np.ndarray
    phi: np.ndarray
    psi: np.ndarray
    background: tuple[float, float, float]
    push: Callable
    pull: Callable | None
    known: Callable
    log_value: Callable
    gains: Callable | None

    @property
    def whole(self) -> np.ndarray:
        share, mass, seen = self.background
        broad = np.zeros(self.table.shape)
        broad[:, :, -1, -1] = self.A * seen / mass
        return (1.0 - share) * self.table + share * broad


def table(K: np.ndarray, left: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """sum_ab weights_ab sum_r (left K_ar)_ij (left K_br)_kl from K of shape (n, m, z, R)."""
    n, m, z, rank = K.shape
    found = np.zeros((len(left), len(left), m, m))
    for a, b, r in itertools.product(range(z), range(z), range(rank)):
        one, other = left @ K[:, :, a, r], left @ K[:, :, b, r]
        for i, k, j, q in itertools.product(range(len(left)), range(len(left)), range(m), range(m)):
            found[i, k, j, q] += weights[a, b] * one[i, j] * other[k, q]
    return found


def basis(seed: int, size: int) -> sm.GaussianBasis:
    rng = np.random.default_rng(seed)
    return sm.GaussianBasis(rng.normal(size=(size, 1)), 0.8 + rng.random((size, 1)))


def at(b: sm.GaussianBasis, y: np.ndarray) -> np.ndarray:
    """The functions at one point, of unit L2 norm."""
    mean, std = np.asarray(b.mean)[:, 0], np.exp(np.asarray(b.log_std))[:, 0]
    return np.exp(-0.5 * ((y[0] - mean) / std) ** 2) / (np.pi**0.25 * np.sqrt(std))


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def pairs(A: np.ndarray) -> np.ndarray:
    """Values over unique pairs."""
    return jnp.asarray(A[np.triu_indices(len(A))])


LEFT = np.tril(0.3 * normal(N, N), -1) + np.diag([0.7, 1.1, 0.9])


def of_kernel(transition: sm.Transition, f: np.ndarray) -> Case:
    kernel, background = transition.kernel, transition.kernel.background
    phi, psi = transition.phi.evaluate(jnp.asarray(Y)), transition.psi.evaluate(jnp.asarray(Y_NEXT))
    return Case(
        f, np.asarray(kernel.g.matrix), at(transition.phi, Y), at(transition.psi, Y_NEXT),
        (background.share, float(background.mass), 1.0),
        push=lambda *v: kernel.push(pairs(np.outer(*v * 2))),
        pull=kernel.pull,
        known=lambda: np.exp(float(kernel.form_from(transition.psi, phi).log_value_of(psi))),
        log_value=lambda: kernel.log_value(phi, psi),
        gains=lambda M: kernel.gains(pairs(M)),
    )  # fmt: skip


def plain(share: float) -> Case:
    transition = sm.Transition(basis(0, N), basis(1, M), sm.Kraus(normal(N, M, R), LEFT, background=share))
    return of_kernel(transition, table(np.asarray(transition.kernel.K)[:, :, None], LEFT, np.eye(1)))


def driven(share: float) -> Case:
    K, centres = normal(J, N, M, R), normal(J, 1)
    b = np.exp(-0.5 * ((U - centres[:, 0]) / 0.7) ** 2)
    coupling = sm.Driven(sm.Bumps(centres, [0.7]), K, LEFT, background=share)
    transition = sm.DrivenTransition(basis(0, N), basis(1, M), coupling).at(jnp.asarray(U))
    K = sum(one * weight for one, weight in zip(K, b / b.sum(), strict=True))
    return of_kernel(transition, table(K[:, :, None], LEFT @ np.asarray(transition.kernel.S), np.eye(1)))


def phases(share: float) -> Case:
    K = normal(J, N, M, R)
    coupling = sm.Driven(sm.Phases(J), K, LEFT, background=share)
    transition = sm.DrivenTransition(basis(0, N), basis(1, M), coupling).at(jnp.asarray([J + 1.0]))
    return of_kernel(transition, table(K[1][:, :, None], LEFT @ np.asarray(transition.kernel.S), np.eye(1)))


def paired(share: float) -> Case:
    transition = sm.Transition(basis(0, N), basis(1, N), sm.Paired(LEFT, background=share))
    Q, f = np.asarray(transition.kernel.Q), np.zeros((N,) * 4)
    for i, k in itertools.product(range(N), range(N)):
        f[i, k, i, k] = Q[i, k]
    return of_kernel(transition, f)


def joint(share: float) -> Case:
    zeta, coupling = basis(2, Z), sm.Kraus(normal(N, M, Z * R), LEFT, background=share)
    transition, sensor = sm.Transition(basis(0, N), basis(1, M), coupling), sm.LearnedSensor(zeta, background=share)
    seen = sensor.emitted(jnp.asarray(READING))
    kernel = sensor.kernel(transition, seen)
    read = np.asarray(sensor.root) @ at(zeta, READING)
    N_of, log_scale = np.outer(read, read) / np.exp(float(seen.log_scale)), float(seen.log_scale)
    broad = at(zeta, READING)[-1] ** 2 / np.exp(log_scale)
    values, vectors = np.linalg.eigh(N_of)
    root = jnp.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
    log_g = float(transition.g.log_value(jnp.asarray(Y))), float(transition.g.log_value(jnp.asarray(Y_NEXT)))
    psi = transition.psi.evaluate(jnp.asarray(Y_NEXT))

    def known() -> float:
        phi = transition.phi.evaluate(jnp.asarray(Y))
        squares = sensor.kernel(transition, seen._replace(N=root.T, broad=jnp.asarray(broad)))
        h, C = squares.form_from(transition.psi, phi), kernel.known(transition.psi, phi)
        np.testing.assert_allclose(h.coefficients, C, rtol=1e-12, atol=1e-12)
        return np.exp(float(h.log_value_of(psi)))

    def log_value() -> float:
        log_prob = sensor.log_prob_model(transition, jnp.asarray(Y_NEXT), jnp.asarray(Y), jnp.asarray(READING))
        return log_prob - log_g[1] + log_g[0] - log_scale

    K = np.asarray(transition.kernel.K).reshape(N, M, Z, R)
    return Case(
        table(K, LEFT, N_of), LEFT @ LEFT.T, at(transition.phi, Y), at(transition.psi, Y_NEXT),
        (share, float(transition.kernel.background.mass), broad),
        push=lambda *v: kernel.push(pairs(np.outer(*v * 2))),
        pull=kernel.pull,
        known=known, log_value=log_value, gains=None,
    )  # fmt: skip


def conditional(share: float) -> Case:
    parents, lefts = {"a": basis(0, N), "b": basis(3, 2)}, {"a": LEFT, "b": LEFT[:2, :2]}
    free = sm.Conditional(basis(1, M), normal(N, 2, M, R), parents, factors=lefts, background=share)
    S = normal(M, M)
    kernel, left = free.normalise(jnp.asarray(S @ S.T)), np.kron(LEFT, LEFT[:2, :2])
    at_parents, at_next = (jnp.asarray(Y), jnp.asarray(2 * Y)), jnp.asarray(Y_NEXT)
    psi, (rows, columns) = at(free.psi, Y_NEXT), np.triu_indices(M)
    return Case(
        table(np.asarray(kernel.K).reshape(-1, M, 1, R), left, np.eye(1)), left @ left.T,
        np.kron(at(parents["a"], Y), at(parents["b"], 2 * Y)), psi, (share, float(kernel.background.mass), 1.0),
        push=lambda v, w: jnp.einsum("p,q,pqr->r", pairs(np.outer(v, v)), pairs(np.outer(w, w)), kernel.tensor()),
        pull=None,
        known=lambda: np.asarray(kernel.form_from(at_parents)) @ (psi[rows] * psi[columns]),
        log_value=lambda: kernel.log_value(at_parents, at_next),
        gains=lambda M: kernel.gains(jnp.asarray(M)),
    )  # fmt: skip


KERNELS = {
    "plain": plain,
    "driven": driven,
    "phases": phases,
    "paired": paired,
    "joint": joint,
    "conditional": conditional,
}


@pytest.fixture(scope="module", params=[(name, share) for name in KERNELS for share in (0.0, 0.2)], ids=str)
def case(request):
    name, share = request.param
    return KERNELS[name](share)


def test_values_and_what_is_known(case):
    f = np.einsum("i,k,j,l,ikjl->", case.phi, case.phi, case.psi, case.psi, case.whole)
    g = case.phi @ case.A @ case.phi
    np.testing.assert_allclose(float(case.log_value()), np.log(f), rtol=0, atol=1e-12)
    np.testing.assert_allclose(float(case.known()), f / g, rtol=1e-12)


def test_push_and_pull_are_sums_over_the_table(case):
    size = len(case.psi)
    parts = [normal(N), normal(len(case.phi) // N)][: 1 if len(case.phi) == N else 2]
    v = np.kron(*parts) if len(parts) == 2 else parts[0]
    expected = np.einsum("i,k,ikjl->jl", v, v, case.whole)
    expected = pack(0.5 * (expected + expected.T))
    np.testing.assert_allclose(case.push(*parts), expected, rtol=1e-12, atol=1e-12 * np.max(np.abs(expected)))
    if case.pull is not None:
        values = normal(size, size) + normal(size, size).T
        expected = np.einsum("ikjl,jl->ik", case.whole, values)
        expected = pack(0.5 * (expected + expected.T))
        np.testing.assert_allclose(case.pull(pairs(values)), expected, rtol=1e-12, atol=1e-12)


def test_gains_are_the_spectrum_of_what_is_integrated(case):
    if case.gains is None:
        return  # A density of states and readings has no share of its own to lose.
    root = normal(len(case.psi), 5)
    values = root @ root.T
    integrated = np.einsum("ikjl,jl->ik", case.whole, values)
    expected = scipy.linalg.eigh(0.5 * (integrated + integrated.T), case.A, eigvals_only=True)
    np.testing.assert_allclose(np.sort(case.gains(values)), expected, rtol=1e-10)


def test_whitened_operators_add_up_to_the_identity():
    root = normal(M, M)
    K, residual = whitened(jnp.asarray(normal(N, M, R)), jnp.asarray(root @ root.T))
    total = sum(np.asarray(K)[:, :, r] @ root @ root.T @ np.asarray(K)[:, :, r].T for r in range(R))
    np.testing.assert_allclose(total, np.eye(N), rtol=0, atol=1e-13)
    assert float(residual) < 1e-13


def test_without_a_share_the_background_asks_for_nothing():
    own, nothing = jnp.asarray([1.0, 2.0, 3.0]), Background(0.0, jnp.asarray(jnp.nan))
    never = lambda: pytest.fail("asked for what is not needed")  # noqa: E731
    form = sm.LinearForm(basis(0, N), np.ones(N))
    assert nothing.log(own, never) is own
    assert nothing.push(own, never) is own
    assert nothing.pull(own, own[-1], form) is own
    assert nothing.gains(own, own[-1]) is own
    assert nothing.form(form) is form


def test_a_share_is_mixed_into_both_kinds_of_form():
    background, y = Background(0.3, jnp.asarray(0.8), jnp.asarray(0.4)), jnp.asarray(Y)
    last = at(basis(0, N), Y)[-1]
    for form, power in (
        (sm.LinearForm(basis(0, N), [0.2, 0.5, 0.1]), 1),
        (sm.SquaredForm(basis(0, N), normal(N, R)), 2),
    ):
        expected = 0.7 * float(form.value(y)) + 0.3 * 0.4 * last**power / 0.8
        np.testing.assert_allclose(float(background.form(form).value(y)), expected, rtol=1e-14)
