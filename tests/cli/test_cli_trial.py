"""The page's trial: a file as another tool writes it, from the first attempt to the report, by the page's own lines."""

import re
import shlex
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "command-line.md").read_text().split("## An export of another tool")[1].split("\n## ")[0]
SMALL = ["--set", "size=3", "steps=50", "surrogate=false"]


@pytest.fixture
def export(tmp_path, monkeypatch):
    """Batches that cool and warm, ids and dates as text, missing cells and rows, a column that never changes."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    head = re.search(r"^Batch ID.*$", PAGE, re.MULTILINE)
    assert head is not None
    lines = [head.group(0)]
    for batch in range(20):
        begin, value = datetime(2024, 3, 1, 9, 20) + timedelta(days=batch), 20.0 + rng.normal()
        for k in range(12):
            value = 25.0 + 0.8 * (value - 25.0) + rng.normal()
            if rng.random() < 0.05:
                continue
            cell = "-" if rng.random() < 0.05 else f"{value:.2f}"
            at = (begin + timedelta(minutes=10 * k)).isoformat() + "Z"
            lines.append(f'B-{batch:03d},{at},{cell},{"Ann" if k % 2 else "Bo"},2,"ok, closed"')
    path = Path("export.csv")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_foreign_export_becomes_a_report_by_the_lines_of_the_page(ask, export):
    first = ask("fit", export, "-o", "model.sosm", *SMALL)
    assert first.code == 1
    for told in ("Timestamp (UTC)' holds dates", "'Batch ID' looks like one value a trajectory", "'Firmware' with one"):
        assert told in first.err
        assert told in PAGE.replace("\n", " ")

    commands = re.search(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert commands is not None
    fit, probability, report = (shlex.split(line)[1:] for line in commands.group(1).splitlines())
    assert ask(*fit, *SMALL).code == 0
    answer = ask(*probability)
    assert answer.code == 0
    # After three steps N(25 - 0.8^3 5, 0.8^6 + 0.8^4 + 0.8^2 + 1), and next to nothing of it is above 40.
    expected = norm.sf(20.0, 25.0 - 5.0 * 0.8**3, np.sqrt(0.8**6 + 0.8**4 + 0.8**2 + 1.0))
    assert abs(float(re.findall(r"[0-9.]+", answer.out)[-1]) - expected) < 0.06
    assert ask(*report).code == 0
    page = Path("report.html").read_text()
    assert "Temp [°C]" in page
    assert "<html" in page
