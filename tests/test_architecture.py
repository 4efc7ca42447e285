"""The architecture, held: the table of docs/architecture.md is the order in which files may import each other."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sosmarkov"
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
NAMES = {
    path: str(path.relative_to(SOURCE).with_suffix("")).replace("/", ".").removesuffix(".__init__") for path in FILES
}
MODULES = set(NAMES.values())
# What a person or a page calls with many options by name.
FRONTS = {"fit", "fit_network", "from_dynamics", "tune"}


def table() -> dict[str, list[str]]:
    """The files of every room, in order, as the page has them."""
    rows = re.findall(
        r"^\| `([\w.]+)` \| .* \| (.*) \|$", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE
    )
    return {room: re.findall(r"`(\w+)`", files) for room, files in rows}


def order() -> list[str]:
    """All modules, those first that others may import; a package after its files, which it may name."""
    rooms = table()

    def walk(room: str) -> list[str]:
        found = []
        for name in rooms[room]:
            inner = f"{room}.{name}"
            found += walk(inner) if inner in rooms else [inner]
        return [*found, room]

    return [name for room in rooms if "." not in room for name in walk(room)]


ORDER = {name: place for place, name in enumerate(order())}


def imported(path: Path) -> set[str]:
    """Modules of the package that a file imports anywhere in it, and names it takes from the package's root."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("sosmarkov")}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "sosmarkov":
            inside = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full.removeprefix("sosmarkov.") in MODULES else node.module for full in inside.values()}
            found |= {full for name, full in inside.items() if node.module == "sosmarkov" and name not in MODULES}
    return {name.removeprefix("sosmarkov.") for name in found}


def test_the_page_knows_every_file_and_no_other():
    assert MODULES == set(ORDER)


@pytest.mark.parametrize("path", FILES, ids=NAMES.get)
def test_imports_point_up_the_table(path):
    # The command line and its figures speak of the public names, as a user does.
    free = (
        {"sosmarkov", "__version__"} if NAMES[path].split(".")[0] != "cli" else {"sosmarkov"} | imported(path) - MODULES
    )
    for name in imported(path) - free:
        assert name in ORDER, f"{NAMES[path]} takes {name} from the package's root"
        assert ORDER[name] < ORDER[NAMES[path]], f"{NAMES[path]} imports {name}, which stands below it"


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.parametrize("path", FILES, ids=NAMES.get)
def test_files_and_functions_stay_readable(path):
    assert len(path.read_text().splitlines()) <= 400
    for function in functions(path):
        said = ast.get_docstring(function, clean=False)
        lines = function.end_lineno - function.lineno + 1 - (len(said.splitlines()) if said else 0)
        assert lines <= 60, f"{function.name} has {lines} lines without its docstring"
        arguments = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        count = len([name for name in arguments if name not in ("self", "cls")])
        front = function.name in FRONTS or function.name.startswith("plot_")
        assert count <= 8 or front, f"{function.name} takes {count} arguments"


def test_every_room_has_tests_of_its_own():
    known = {
        "contracts": "belief",
        "factor": "bases",
        "spaces": "test_transforms.py",
        "data": "learning",
        "core": "test_numerics.py",
    }
    known |= {"networks": "network", "forecasting": "plots", "estimator": "test_estimator.py", "sensors": "inference"}
    for room in table():
        top = room.split(".")[0]
        assert (ROOT / "tests" / known.get(top, top)).exists(), top


def test_every_public_name_is_where_the_package_says():
    import sosmarkov

    for name in sosmarkov.__all__:
        assert getattr(sosmarkov, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sosmarkov.nothing  # noqa: B018
