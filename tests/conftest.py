"""Settings for all tests: quick compilation, one hypothesis profile, no deadline (compilation counts otherwise)."""

import gc
import os
from pathlib import Path

import jax
import pytest
from hypothesis import settings

from sosmarkov_bench.memory import peak_memory_mb

# Nearly all of a test's time is compilation, and nearly all of that LLVM's optimisation: the tests translate the
# same programs without it. `make exhaustive` compiles as users do; so do the tests that start a process of their
# own, with the environment below. Should a later XLA drop one of these flags, it says so on the first line.
# What one worker has compiled serves the other, processes that tests start, and the next run.
CACHE = {
    "jax_compilation_cache_dir": str(Path(__file__).parent.parent / ".jax_cache"),
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
# Arrays of different ranks meet where the code says so, not where a shape happens to fit.
for name, value in {**CACHE, "jax_numpy_rank_promotion": "raise"}.items():
    os.environ[name.upper()] = str(value)
    jax.config.update(name, value)
AS_USERS = dict(os.environ)
if os.environ.get("SOSMARKOV_EXHAUSTIVE") != "1":
    quick = [
        "--xla_backend_optimization_level=0",
        # A flag of jax 0.10 alone: later ones stop at a flag they do not know.
        *(["--xla_cpu_use_fusion_emitters=false"] if jax.__version_info__ < (0, 11) else []),
        "--xla_cpu_parallel_codegen_split_count=1",  # the other core has a worker of its own
    ]
    # Every operation of every program would carry the ten lines of source that led to it.
    jax.config.update("jax_traceback_in_locations_limit", 0)
    os.environ["XLA_FLAGS"] = " ".join([*filter(None, [os.environ.get("XLA_FLAGS")]), *quick])

# A worker meets every kind of model there is: programs make room earlier than a user's would.
os.environ.setdefault("SOSMARKOV_PROGRAM_MEMORY", "600")

settings.register_profile("exact", deadline=None, max_examples=6, derandomize=True)
settings.load_profile("exact")


@pytest.fixture
def as_users() -> dict[str, str]:
    """The environment of a process that compiles as users do."""
    return AS_USERS


@pytest.fixture
def nothing_of_ones_own_stays():
    """Families, couplings and classes that a test registers are gone after it."""
    # What reads files knows every class of the package: one first imported in a test would be gone for all after it.
    import sosmarkov.io.model  # noqa: F401
    from sosmarkov.core.stored import ENTRIES
    from sosmarkov.factor.bases import FAMILIES
    from sosmarkov.factor.couplings import COUPLINGS

    lists = FAMILIES, COUPLINGS, ENTRIES
    before = [dict(one) for one in lists]
    yield
    for one, old in zip(lists, before, strict=True):
        one.clear()
        one.update(old)


def pytest_collection_finish():
    # What is imported stays: the collector need not walk it again for every few thousand objects that tracing makes.
    # Nor look at what is new after every few hundred objects; at all of them it looks about as often as before.
    gc.freeze()
    gc.set_threshold(10_000, 5, 2)


# What a worker may hold: programs are dropped by the library itself, well below this.
MOST_MEMORY_MB = 2500
PEAKS = pytest.StashKey[dict[str, float]]()


def pytest_configure(config):
    config.stash[PEAKS] = {}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    # A worker that died has nothing to say; its death is reported as such.
    if "peak" in getattr(node, "workeroutput", {}):
        node.config.stash[PEAKS][node.gateway.id] = node.workeroutput["peak"]


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = peak_memory_mb()
        return
    peaks = session.config.stash[PEAKS]
    peaks.setdefault("this process", peak_memory_mb())
    if max(peaks.values()) > MOST_MEMORY_MB:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    peaks = ", ".join(f"{name} {peak:.0f} MB" for name, peak in sorted(config.stash[PEAKS].items()))
    terminalreporter.section("peak memory")
    terminalreporter.write_line(f"{peaks}; expected at most {MOST_MEMORY_MB} MB each")
