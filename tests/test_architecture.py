"""Import direction is the architecture: a room imports only rooms listed before it."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "sosmarkov"

# In the order the data walks through them. `contracts` says what every form of process answers; `inference` stands
# before `process` because its functions act on a transition and coefficients, and the process's verbs call them.
ROOMS = [
    "core",
    "spaces",
    "data",
    "contracts",
    "factor",
    "sensors",
    "inference",
    "forecasting",
    "process",
    "learning",
    "networks",
    "io",
    "plots",
    "report",
    "cli",
    "estimator",
    "adapters",
]

# Inside a room the order is a table too.
INSIDE = {
    "core": ["checks", "programs", "files", "stored", "tree", "saving", "precision", "numerics", "perron", "special"],
    "data": [
        "recorded",
        "given",
        "dataset",
        "enough",
        "history",
        "frames",
        "doubts",
        "wide",
        "tables",
        "stream",
        "gather",
    ],
    "contracts": ["entering", "belief", "known", "mixture", "transition", "reader"],
    "factor": [
        "bases",
        "forms",
        "plain",
        "background",
        "sampling",
        "starts",
        "couplings",
        "integrals",
        "beliefs",
        "likelihood",
        "normals",
        "boxes",
        "weigh",
        "readings",
        "step",
        "transition",
        "driven",
        "register",
    ],
    "sensors": ["base", "gaussian", "linear", "interval", "mixture", "factor", "joint"],
    "inference": [
        "recursion",
        "beliefs",
        "propagate",
        "filter",
        "smooth",
        "safety",
        "stationary",
        "trajectories",
        "means",
    ],
}

# Within `bases`: shared code first, then one file a family.
BASES = [
    "base",
    "family",
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


def place(name: str) -> tuple[str, int]:
    """A module's room, and where it stands in it; the middle where the room has no table."""
    room, *rest = name.removeprefix("sosmarkov.").split(".")
    if room == "factor" and rest[:1] == ["bases"] and len(rest) > 1:
        return "factor.bases", BASES.index(rest[1]) if rest[1] in BASES else len(BASES)
    inside = INSIDE.get(room, [])
    return room, inside.index(rest[0]) if rest and rest[0] in inside else -1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_up_the_list(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    room, at = place(".".join(("sosmarkov", *parts)))
    assert parts[0] in ROOMS, f"{parts[0]} is not in the list of rooms"
    for name in imported(path):
        other = name.split(".")[1]
        if other not in ROOMS:
            continue  # a name re-exported by the package
        assert ROOMS.index(other) <= ROOMS.index(parts[0]), f"{path.name} imports {name} from a room below it"
        there, position = place(name)
        if there == room and path.stem != "__init__" and not name.endswith(path.stem):
            assert position <= at or at == -1, f"{path.name} imports {name}, which stands below it"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_readable(path):
    assert len(path.read_text().splitlines()) <= 400


def test_every_public_name_is_where_the_package_says():
    import sosmarkov

    for name in sosmarkov.__all__:
        assert getattr(sosmarkov, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sosmarkov.nothing  # noqa: B018
