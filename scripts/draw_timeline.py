#!/usr/bin/env python3
"""Draws a trace that TensorFlow's Timeline wrote (examples/timeline.py) as a picture, an SVG or, where Chromium is
installed, a PNG. Standard library only.

    scripts/draw_timeline.py timeline.json timeline.png
"""
import html
import json
import os
import shutil
import subprocess
import sys
import tempfile

WIDTH, LEFT, ROW, TOP = 1400, 200, 22, 50
COLORS = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#ff9da7", "#9c755f"]
TRANSFER = "#d62728"


def rows_of(events):
    """[(device, [[event]])]: lanes of events that do not overlap, by device; devices without nodes are left out."""
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    devices = {}
    for e in events:
        if e["ph"] == "X" and names[e["pid"]].endswith(" Compute"):
            devices.setdefault(names[e["pid"]][:-len(" Compute")], []).append(e)
    result = []
    for device in sorted(devices):
        lanes = []
        for e in sorted(devices[device], key=lambda e: (e["name"] == "RecvTensor", e["ts"])):
            for lane in lanes:
                if lane[0]["name"] == "RecvTensor" or e["name"] == "RecvTensor":
                    if (lane[0]["name"] == "RecvTensor") != (e["name"] == "RecvTensor"):
                        continue
                if lane[-1]["ts"] + lane[-1]["dur"] <= e["ts"]:
                    lane.append(e)
                    break
            else:
                lanes.append([e])
        result.append((device, lanes))
    return result


def text(x, y, content, size=12, anchor="start", color="#222"):
    return '<text x="%.1f" y="%.1f" font-size="%d" text-anchor="%s" fill="%s">%s</text>' % (x, y, size, anchor, color,
                                                                                         html.escape(content))


def box(e, x, y, width, colors):
    name = e["name"]
    color = TRANSFER if name == "RecvTensor" else COLORS[colors.setdefault(name, len(colors)) % len(COLORS)]
    out = ['<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" stroke="white" stroke-width="0.5"/>' %
           (x, y + 2, max(width, 1.0), ROW - 4, color)]
    if len(name) * 6.6 < width:
        out.append(text(x + width / 2, y + ROW - 7, name, 11, "middle", "white"))
    return out


def draw(events):
    devices = rows_of(events)
    all_events = [e for _, lanes in devices for lane in lanes for e in lane]
    begin = min(e["ts"] for e in all_events)
    span = max(max(e["ts"] + e["dur"] for e in all_events) - begin, 1)
    scale = (WIDTH - LEFT - 20) / span
    out, y, colors = [], TOP, {}
    for device, lanes in devices:
        short = device.replace("/replica:0", "").replace("/device:", "/")
        out.append(text(8, y + ROW * len(lanes) / 2 + 4, short, 13))
        for lane in lanes:
            for e in lane:
                out += box(e, LEFT + (e["ts"] - begin) * scale, y, e["dur"] * scale, colors)
            y += ROW
        out.append('<line x1="0" x2="%d" y1="%d" y2="%d" stroke="#bbb"/>' % (WIDTH, y + 5, y + 5))
        y += 10
    for i in range(11):
        x = LEFT + i * (WIDTH - LEFT - 20) / 10
        out.append('<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#eee"/>' % (x, x, TOP - 6, y))
        out.append(text(x, TOP - 12, "%.1f ms" % (span * i / 10000.0), 11, "middle"))
    out.append(text(8, 20, "One step; red: tensors received from another task", 14))
    lines = [o for o in out if o.startswith("<line")]
    rest = [o for o in out if not o.startswith("<line")]
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif">'
            '<rect width="100%%" height="100%%" fill="white"/>%s</svg>' % (WIDTH, y + 10, "\n".join(lines + rest))), y + 10


def main(trace, out):
    with open(trace) as f:
        svg, height = draw(json.load(f)["traceEvents"])
    if out.endswith(".svg"):
        with open(out, "w") as f:
            f.write(svg)
        return 0
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        sys.exit("no Chromium to make %s with; give it a name that ends in .svg" % out)
    with tempfile.TemporaryDirectory() as d:
        page = os.path.join(d, "page.html")
        with open(page, "w") as f:
            f.write("<!DOCTYPE html><style>body{margin:0}</style>" + svg)
        return subprocess.call([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                                "--user-data-dir=" + d, "--window-size=%d,%d" % (WIDTH, height),
                                "--screenshot=" + os.path.abspath(out), "file://" + page], stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
