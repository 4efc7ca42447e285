"""Make the pictures of docs/plots.md and docs/report.md: a learned oscillator, drawn by the library's own functions.

Needs the package's test group (matplotlib, playwright) and Debian's chromium for the pages.
"""

import io
import shutil
import tempfile
from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")
import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import sosmarkov as sm
from sosmarkov import plots
from sosmarkov.core.files import write_atomic
from sosmarkov.report import write_report
from sosmarkov_bench.systems import get_system

IMAGES = Path(__file__).parent / "images"
VIEWS = {"desktop": (1180, 1010), "phone": (360, 740)}


def draw(process: sm.MarkovProcess, test: np.ndarray) -> None:
    """One picture a function."""
    found = {
        "plot-belief": sm.plot_belief(process.belief_at(5)).figure,
        "plot-marginals": sm.plot_marginals_over_time(process, test, steps=[0, 2, 4, 6, 10])[0, 0].figure,
        "plot-fan": sm.plot_fan(process, 0, data=test).figure,
        "plot-stationary": sm.plot_stationary(process, 0).figure,
        "plot-training": sm.plot_training(process)[0].figure,
        "plot-calibration": sm.plot_calibration(process, test, most=150)[0].figure,
    }
    for name, figure in found.items():
        plots.save(figure, IMAGES / f"{name}.png", dpi=80)


def photograph(page: Path) -> None:
    """The report, as wide as a desk and as a phone, light and dark."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for mode in ("light", "dark"):
            for name, (width, height) in VIEWS.items():
                tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=mode)
                tab.goto(page.as_uri())
                tab.focus("#step")
                for _ in range(5):
                    tab.keyboard.press("ArrowRight")
                tab.evaluate("document.activeElement.blur(); window.scrollTo({ top: 0, behavior: 'instant' })")
                picture = Image.open(io.BytesIO(tab.screenshot())).convert(
                    "P", palette=Image.Palette.ADAPTIVE, colors=256
                )
                content = io.BytesIO()
                picture.save(content, format="png", optimize=True)
                write_atomic(IMAGES / f"report-{name}-{mode}.png", content.getvalue())
        browser.close()


def main() -> None:
    """Learn, draw, photograph."""
    system = get_system("vdp")
    training, test = (np.asarray(system.simulate(jax.random.key(seed), 1000, 10)) for seed in (0, 1))
    process = sm.fit(training, size=14, steps=700)
    draw(process, test)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(process, page, data=test)
        photograph(page)


if __name__ == "__main__":
    main()
