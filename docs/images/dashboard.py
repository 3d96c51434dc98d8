#!/usr/bin/env python3
"""Draws the chart's dashboard as an SVG, from the answers of a Prometheus to the queries of its panels.

    OSM_DASHBOARD=/tmp/panels.json cargo test --test chain alerts_fire
    python3 docs/images/dashboard.py /tmp/panels.json docs/images/dashboard.svg

The picture has the panels, their places and their data. It is not a screenshot of Grafana, and a line of the picture says that.
"""

import html
import json
import math
import re
import sys

COLUMN, LINE, GAP, HEAD = 50, 26, 6, 44
COLORS = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#ffa6b0", "#96d98d", "#c0d8ff"]
NOTE = "Drawn from the queries of the dashboard's panels, answered by Prometheus during a test that breaks things. It is not a screenshot of Grafana."


def text(x, y, words, size=11, color="#ccccdc", anchor="start", weight="normal"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{color}" text-anchor="{anchor}" font-weight="{weight}">'
            f"{html.escape(words)}</text>")


def box(x, y, width, height, color):
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="3" fill="{color}"/>'


def shortened(words, width, size):
    """The words, as far as they fit into so many pixels."""
    most = max(int(width / (size * 0.56)), 1)
    return words if len(words) <= most else words[: most - 1] + "…"


def scaled(value, base, units):
    index = 0
    while abs(value) >= base and index < len(units) - 1:
        value, index = value / base, index + 1
    return f"{value:.3g}{units[index]}"


def written(value, unit):
    """A value with its unit, as Grafana shows it."""
    if unit == "bytes":
        return scaled(value, 1024, [" B", " KiB", " MiB", " GiB"])
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        for factor, name in [(86400, "d"), (3600, "h"), (60, "min")]:
            if abs(value) >= 2 * factor:
                return f"{value / factor:.3g} {name}"
        return f"{value:.3g} s" if value >= 1 or value == 0 else f"{1000 * value:.3g} ms"
    suffix = {"ops": "/s", "reqps": "/s"}.get(unit, "")
    return scaled(value, 1000, ["", " K", " M"]) + suffix


def name_of(target, series):
    """The name of a time series in the legend."""
    legend = re.sub(r"{{(\w+)}}", lambda label: series["metric"].get(label[1], ""), target["legendFormat"])
    return legend.strip() or "value"


def draw_stat(panel, x, y, width, height):
    values = [float(series["value"][1]) for target in panel["targets"] for series in target["result"]]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    value = values[0]
    color = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
    color = {"green": "#73bf69", "red": "#f2495c"}[color]
    return text(x + width / 2, y + height / 2 + 16, written(value, "short"), 30, color, "middle", "bold")


def draw_table(panel, x, y, width, height):
    hidden = set(panel["transformations"][0]["options"]["excludeByName"])
    rows = [{**series["metric"], "Value": series["value"][1]} for target in panel["targets"] for series in target["result"]]
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in hidden]
    rows.sort(key=lambda row: [row.get(name, "") for name in names])
    room = int((height - 46) / 15)
    shown = rows if len(rows) <= room else rows[: room - 1]
    cell = (width - 16) / max(len(names), 1)
    svg = ""
    for index, row in enumerate([{name: name for name in names}] + shown):
        for column, name in enumerate(names):
            words = shortened(row.get(name, ""), cell - 4, 10)
            svg += text(x + 8 + column * cell, y + 38 + 15 * index, words, 10, "#8e8e9e" if index == 0 else "#ccccdc")
    if len(shown) < len(rows):
        svg += text(x + 8, y + 38 + 15 * (len(shown) + 1), f"… {len(rows) - len(shown)} more rows", 10, "#8e8e9e")
    return svg


def draw_series(panel, x, y, width, height, begin, end):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    lines = []
    for target in panel["targets"]:
        for series in target["result"]:
            points = [(at, float(value)) for at, value in series["values"]]
            lines.append((name_of(target, series), [(at, value) for at, value in points if math.isfinite(value)]))
    lines.sort(key=lambda line: -max((value for _, value in line[1]), default=0))
    left, top, right, bottom = x + 56, y + 30, x + width - 10, y + height - 50
    highest = max((value for _, line in lines for _, value in line), default=0) or 1
    highest = panel["fieldConfig"]["defaults"].get("max", highest * 1.1)
    svg = ""
    for part in range(4):
        at = bottom - (bottom - top) * part / 3
        svg += f'<line x1="{left}" y1="{at:.0f}" x2="{right}" y2="{at:.0f}" stroke="#2c3235"/>'
        svg += text(left - 4, at + 3, written(highest * part / 3, unit), 9, "#8e8e9e", "end")
    for index, (_, points) in enumerate(lines):
        place = [(left + (right - left) * (at - begin) / max(end - begin, 1), bottom - (bottom - top) * min(value / highest, 1))
                 for at, value in points]
        # A point that is on the line between its neighbours adds nothing.
        kept = [point for number, point in enumerate(place)
                if number in (0, len(place) - 1) or not place[number - 1][1] == point[1] == place[number + 1][1]]
        path = " ".join(f"{a:.0f},{b:.1f}" for a, b in kept)
        color = COLORS[index % len(COLORS)]
        svg += f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.3"/>' if len(kept) > 1 else ""
    room = 3
    for index, (name, _) in enumerate(lines[: 2 * room]):
        a, b = x + 10 + (index % 2) * (width / 2 - 5), bottom + 16 + 12 * (index // 2)
        is_last = index == 2 * room - 1 and len(lines) > 2 * room
        words = f"… {len(lines) - index} more" if is_last else shortened(name, width / 2 - 30, 9)
        svg += "" if is_last else box(a, b - 5, 10, 3, COLORS[index % len(COLORS)])
        svg += text(a + 14, b, words, 9)
    return svg


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        dashboard = json.load(file)
    panels = dashboard["panels"]
    times = [at for panel in panels for target in panel.get("targets", []) for series in target["result"]
             for at, _ in series.get("values", [])]
    width, height = 24 * COLUMN, max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) * LINE + HEAD
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           f'font-family="Inter, Helvetica, Arial, sans-serif">',
           f"<title>{html.escape(dashboard['title'])}</title>", box(0, 0, width, height, "#111217"),
           text(12, 18, dashboard["title"], 14, weight="bold"), text(12, 35, NOTE, 11, "#8e8e9e")]
    for panel in panels:
        place = panel["gridPos"]
        x, y = place["x"] * COLUMN, place["y"] * LINE + HEAD
        if panel["type"] == "row":
            svg.append(text(x + 10, y + 18, panel["title"], 13, weight="bold"))
            continue
        x, y, wide, high = x + GAP / 2, y + GAP / 2, place["w"] * COLUMN - GAP, place["h"] * LINE - GAP
        svg.append(box(x, y, wide, high, "#181b1f"))
        svg.append(text(x + 8, y + 17, shortened(panel["title"], wide - 16, 11), 11, weight="bold"))
        if panel["type"] == "stat":
            svg.append(draw_stat(panel, x, y, wide, high))
        elif panel["type"] == "table":
            svg.append(draw_table(panel, x, y, wide, high))
        else:
            svg.append(draw_series(panel, x, y, wide, high, min(times), max(times)))
    svg.append("</svg>")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write("\n".join(svg) + "\n")


if __name__ == "__main__":
    main()
