"""Whatever is wrong with a file or an option: one line that says so, an exit code, no traceback."""

import pytest
from malformed import cases

from sosmarkov.cli import main
from tables import EXHAUSTIVE

pytest.importorskip("pyarrow")

# All thousand where everything is tried; a sample elsewhere.
COUNT = 1000 if EXHAUSTIVE else 150


def test_malformed_files_and_options_are_refused_in_one_line(tmp_path, model, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wrong = []
    for words in cases(COUNT, tmp_path, model):
        try:
            code = main(words)
        except BaseException as error:
            code = repr(error)
        said = capsys.readouterr()
        lines = [line for line in said.err.splitlines() if line.startswith("sosmarkov: ")]
        fine = code in (1, 2) and len(lines) == 1 and "Traceback" not in said.err and "Unexpected" not in said.err
        if not fine or said.out:
            wrong.append(f"{words} -> {code}: {said.err.strip() or said.out[:200]}")
    assert not wrong, f"{len(wrong)} of {COUNT}:\n" + "\n".join(wrong[:40])
    assert not list((tmp_path / "out").iterdir())


def test_the_traceback_is_shown_where_asked_for(model):
    with pytest.raises(Exception, match="Expected --box"):
        main(["probability", str(model), "--step", "1", "--box", "x", "--debug"])
