"""Small charts as SVG text: colours come from the page's style sheet, so they follow light, dark and print."""

from __future__ import annotations

import math
from html import escape

import numpy as np

from sosmarkov.core.checks import ArrayLike

_WIDTH, _HEIGHT = 420, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 14, 42


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers between two ends, one, two or five times a power of ten apart."""
    if not high > low:
        return [low]
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    apart = next(step * power for step in (1, 2, 5, 10) if step * power >= rough * 0.999)
    first = math.ceil(low / apart - 1e-9)
    return [round(k * apart, 12) for k in range(first, math.floor(high / apart + 1e-9) + 1)]


def label(value: float) -> str:
    """A number as an axis shows it, with a real minus sign."""
    text = f"{value:.6g}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.1e}"
    return text.replace("-", "−")


class Chart:
    """Axes with room for what is drawn on them.

    Args:
        x: Ends of the horizontal axis.
        y: Ends of the vertical axis.
        x_name: Below it.
        y_name: Beside it.
        title: What a screen reader says of the chart.
        whole: Whether ticks of the horizontal axis are whole numbers.
    """

    def __init__(
        self,
        x: ArrayLike,
        y: ArrayLike,
        x_name: str,
        y_name: str,
        title: str,
        *,
        whole: bool = False,
    ):
        self._x, self._y = (_opened(*ends) for ends in (x, y))
        self._names, self._title, self._whole = (x_name, y_name), title, whole
        self._marks: list[str] = []

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, style: str) -> None:
        """The area between two lines."""
        there = self._points(x, high) + self._points(x, low)[::-1]
        self._marks.append(f'<polygon class="{style}" points="{" ".join(there)}"/>')

    def line(self, x: ArrayLike, y: ArrayLike, style: str) -> None:
        """A line, broken where values are missing."""
        for part in _runs(np.asarray(x, dtype=float), np.asarray(y, dtype=float)):
            points = self._points(*part)
            if len(points) == 1:
                at = points[0].split(",")
                self._marks.append(f'<circle class="{style} dot" cx="{at[0]}" cy="{at[1]}" r="2"/>')
            else:
                self._marks.append(f'<polyline class="{style}" points="{" ".join(points)}"/>')

    def lines(self, x: ArrayLike, rows: np.ndarray, style: str, group: str) -> None:
        """Many thin lines in one group, to be shown and hidden together."""
        self._marks.append(f'<g class="{group}">')
        for row in rows:
            self.line(x, row, style)
        self._marks.append("</g>")

    def bars(self, edges: ArrayLike, heights: ArrayLike, style: str) -> None:
        """Bars from zero."""
        for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
            (a, top), (b, bottom) = self._at(left, height), self._at(right, max(0.0, self._y[0]))
            shape = (
                f'x="{a + 0.5:.1f}" y="{top:.1f}" width="{max(b - a - 1, 0.5):.1f}" height="{max(bottom - top, 0):.1f}"'
            )
            self._marks.append(f'<rect class="{style}" {shape}/>')

    def whiskers(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, style: str) -> None:
        """Vertical strokes."""
        for at, below, above in zip(x, low, high, strict=True):
            if np.isfinite([below, above]).all():
                (a, top), (_, bottom) = self._at(at, above), self._at(at, below)
                self._marks.append(
                    f'<line class="{style}" x1="{a:.1f}" x2="{a:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
                )

    def dots(self, x: ArrayLike, y: ArrayLike, style: str) -> None:
        """Points."""
        for at, value in zip(x, y, strict=True):
            if np.isfinite(value):
                a, b = self._at(at, value)
                self._marks.append(f'<circle class="{style}" cx="{a:.1f}" cy="{b:.1f}" r="3.2"/>')

    def text(self) -> str:
        """The chart."""
        inside = f'x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_HEIGHT - _TOP - _BOTTOM}"'
        begin = f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(self._title)}">'
        # Nested, an SVG clips what is drawn outside of it without a name that would have to be unique on the page.
        shift = f'viewBox="{_LEFT} {_TOP} {_WIDTH - _LEFT - _RIGHT} {_HEIGHT - _TOP - _BOTTOM}"'
        return "".join([begin, self._frame(), f"<svg {inside} {shift}>", *self._marks, "</svg></svg>"])

    def _frame(self) -> str:
        found = []
        bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
        for value in ticks(*self._y, 6):
            _, at = self._at(self._x[0], value)
            found.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
            found.append(f'<text class="tick" x="{_LEFT - 7}" y="{at + 4:.1f}" text-anchor="end">{label(value)}</text>')
        for value in ticks(*self._x, 6):
            if self._whole and value != round(value):
                continue
            at, _ = self._at(value, self._y[0])
            found.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
            found.append(
                f'<text class="tick" x="{at:.1f}" y="{bottom + 17}" text-anchor="middle">{label(value)}</text>'
            )
        found.append(f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
        middle, centre = (_LEFT + right) / 2, (_TOP + bottom) / 2
        x_name, y_name = (escape(_short(name)) for name in self._names)
        found.append(f'<text class="name" x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{x_name}</text>')
        turned = f'x="12" y="{centre}" text-anchor="middle" transform="rotate(-90 12 {centre})"'
        found.append(f'<text class="name" {turned}>{y_name}</text>')
        return "".join(found)

    def _at(self, x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
        across = (x - self._x[0]) / (self._x[1] - self._x[0])
        up = (y - self._y[0]) / (self._y[1] - self._y[0])
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    def _points(self, x: ArrayLike, y: ArrayLike) -> list[str]:
        return ["{:.1f},{:.1f}".format(*self._at(float(a), float(b))) for a, b in zip(x, y, strict=True)]


def _opened(low: ArrayLike, high: ArrayLike) -> tuple[float, float]:
    """Two ends that differ."""
    low, high = float(low), float(high)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _short(name: str, most: int = 28) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _runs(x: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Stretches without missing values."""
    there = np.isfinite(y)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(int)))
    return [(x[a:b], y[a:b]) for a, b in zip(edges[::2], edges[1::2], strict=True)]
