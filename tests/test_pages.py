"""Pages say what the code says: warnings and errors that are explained, tables made from stored figures."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()


def text_of(node):
    """A literal text with ... for what is filled in; None for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values)
    return None


def nodes():
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield from ast.walk(ast.parse(path.read_text()))


def explained():
    rows = re.findall(r"^\| `(.+?)` \|", PAGE, re.MULTILINE)
    return [row.replace("\\|", "|") for row in rows]


def test_every_text_on_the_page_is_one_of_the_library():
    texts = [text for text in map(text_of, nodes()) if text]
    rows = explained()
    assert len(rows) > 25
    for row in rows:
        parts = [re.escape(part) for part in row.split("...")]
        pattern = re.compile(".*?".join(parts), re.DOTALL)
        assert any(pattern.search(text) for text in texts), row


def test_every_warning_of_the_library_is_explained():
    calls = [
        node for node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "warn"
    ]  # fmt: skip
    assert len(calls) == 4
    for call in calls:
        text = text_of(call.args[0])
        assert any(all(part in text for part in row.split("...")) for row in explained()), text
