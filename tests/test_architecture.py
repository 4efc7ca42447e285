"""Import direction is the architecture: a room imports only rooms listed before it."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "sosmarkov"

# In the order the data walks through them. `inference` stands before `process` because its functions
# act on a transition and coefficients, and the process's verbs call them.
ROOMS = [
    "_precision",
    "checks",
    "programs",
    "files",
    "numerics",
    "perron",
    "special",
    "transforms",
    "bases",
    "forms",
    "sampling",
    "couplings",
    "transition",
    "driven",
    "belief",
    "emission",
    "sensors",
    "inference",
    "diagnostics",
    "calibration",
    "process",
    "ensemble",
    "learning",
    "network",
    "io",
    "bench",
    "plots",
    "report",
    "cli",
    "estimator",
    "adapters",
]

# Within `bases`: shared code first, then one file a family.
BASES = [
    "base",
    "product",
    "parametrise",
    "interval",
    "full_table",
    "full_sum",
    "gaussian",
    "gaussian_full",
    "beta",
    "exponential",
    "monomial",
    "fourier",
]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {name for name in names if name.startswith("sosmarkov.")}


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_up_the_list(path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert room in ROOMS, f"{room} is not in the list of rooms"
    for name in imported(path):
        other = name.split(".")[1]
        if other not in ROOMS:
            continue  # a name re-exported by the package
        assert ROOMS.index(other) <= ROOMS.index(room), f"{path.name} imports {name} from a room below it"
        if room == other == "bases" and path.stem != "__init__":
            parts = name.split(".")
            assert len(parts) > 2, f"{path.name} imports the package it is part of"
            assert BASES.index(parts[2]) < BASES.index(path.stem), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_readable(path):
    assert len(path.read_text().splitlines()) <= 400


def test_every_public_name_is_where_the_package_says():
    import sosmarkov

    for name in sosmarkov.__all__:
        assert getattr(sosmarkov, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sosmarkov.nothing  # noqa: B018
