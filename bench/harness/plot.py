"""Plots as SVG, written by hand: rows of dots on a logarithmic axis, and small panels of lines."""
import math
from xml.sax.saxutils import escape

COLOURS = ("#0b6e99", "#e08a00", "#7a3e9d")
GREY, TEXT = "#d8d8d8", "#333333"


class Svg:
    def __init__(self, width, height):
        self.parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" '
                      'font-family="sans-serif" font-size="11" fill="%s">' % (width, height, width, height, TEXT),
                      '<rect width="100%" height="100%" fill="white"/>']

    def line(self, x1, y1, x2, y2, colour=GREY, width=1, dash=""):
        self.parts.append('<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g"%s/>' %
                          (x1, y1, x2, y2, colour, width, ' stroke-dasharray="%s"' % dash if dash else ""))

    def dot(self, x, y, colour):
        self.parts.append('<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>' % (x, y, colour))

    def text(self, x, y, words, anchor="start", size=11, colour=TEXT, weight="normal"):
        self.parts.append('<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d" fill="%s" font-weight="%s">%s</text>' %
                          (x, y, anchor, size, colour, weight, escape(words)))

    def write(self, path):
        with open(path, "w") as f:
            f.write("\n".join(self.parts) + "\n</svg>\n")


class LogAxis:
    """Values to positions between `begin` and `end`; grid at 1, 2, 5 of each power of ten that fits, or at powers only."""

    def __init__(self, values, begin, end, around=None):
        values = [v for v in values if v > 0] + ([around] if around else [])
        self.low, self.high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05
        self.begin, self.scale = begin, (end - begin) / (self.high - self.low)

    def __call__(self, value):
        return self.begin + (math.log10(value) - self.low) * self.scale

    def ticks(self):
        steps = (1, 2, 5) if self.high - self.low < 2.5 else (1,)
        for power in range(math.floor(self.low), math.ceil(self.high) + 1):
            for step in steps:
                if self.low <= power + math.log10(step) <= self.high:
                    yield step * 10.0 ** power


def short(v):
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if v >= unit:
            return "%g%s" % (v / unit, name)
    return "%g" % v


def dots(path, title, rows, series, limit=None):
    """rows: [(label, [a ratio or None for each of `series`])]; 1 is as fast as TensorFlow, `limit` the least wanted."""
    left, right, top, step = 250, 860, 70, 15
    height = top + step * len(rows) + 20
    svg = Svg(right + 30, height)
    axis = LogAxis([v for _, values in rows for v in values if v], left, right, 1)
    svg.text(10, 22, title, size=15, weight="bold")
    for i, name in enumerate(series if len(series) > 1 else ()):
        svg.dot(left + 90 * i, 36, COLOURS[i])
        svg.text(left + 90 * i + 8, 40, name)
    for tick in axis.ticks():
        svg.line(axis(tick), top - 8, axis(tick), height - 15)
        svg.text(axis(tick), top - 12, short(tick) + " x", "middle")
    svg.line(axis(1), top - 8, axis(1), height - 15, TEXT)
    if limit and math.log10(limit) > axis.low:
        svg.line(axis(limit), top - 8, axis(limit), height - 15, "#c0392b", dash="3,3")
    for i, (label, values) in enumerate(rows):
        y = top + step * i + 4
        svg.text(left - 10, y + 4, label, "end")
        shown = [v for v in values if v]
        if shown:
            svg.line(axis(min(shown + [1])), y, axis(max(shown + [1])), y, GREY, 3)
        for colour, v in zip(COLOURS, values):
            if v:
                svg.dot(axis(v), y, colour)
    svg.write(path)


def panels(path, title, drawings, series):
    """drawings: [(title, {series' name: [(x, y)]})]; both axes logarithmic."""
    width, height, top = 420, 230, 50
    svg = Svg(2 * width + 20, top + (len(drawings) + 1) // 2 * height)
    svg.text(10, 22, title, size=15, weight="bold")
    for i, name in enumerate(series):
        svg.dot(20 + 110 * i, 38, COLOURS[i])
        svg.text(28 + 110 * i, 42, name)
    for n, (name, lines) in enumerate(drawings):
        x0, y0 = n % 2 * width, top + n // 2 * height
        points = [p for line in lines.values() for p in line]
        x = LogAxis([p[0] for p in points], x0 + 60, x0 + width - 20)
        y = LogAxis([p[1] for p in points], y0 + height - 35, y0 + 35)
        svg.text(x0 + 60, y0 + 22, name, weight="bold")
        for tick in y.ticks():
            svg.line(x0 + 60, y(tick), x0 + width - 20, y(tick))
            svg.text(x0 + 54, y(tick) + 4, short(tick), "end")
        for value in sorted({p[0] for p in points}):
            svg.text(x(value), y0 + height - 16, short(value), "middle")
        for colour, one in zip(COLOURS, series):
            line = sorted(lines.get(one, []))
            for a, b in zip(line, line[1:]):
                svg.line(x(a[0]), y(a[1]), x(b[0]), y(b[1]), colour, 2)
            for p in line:
                svg.dot(x(p[0]), y(p[1]), colour)
    svg.write(path)
