#!/usr/bin/env python3
"""Records a command in a terminal of 120 columns and writes its output as an SVG.

    python3 docs/images/record.py docs/images/demo.svg 12 cargo xtask demo --once

The picture contains real output only. A section with more than 12 lines is shortened, and the picture shows by how many.
"""

import html
import os
import pty
import re
import sys

COLUMNS, FONT, LINE = 120, 13, 18
STYLES = {"1": 'font-weight="bold"', "2": 'fill="#8b949e"', "31": 'fill="#ff7b72"', "32": 'fill="#7ee787"',
          "33": 'fill="#e3b341"', "36": 'fill="#79c0ff"'}


def record(command):
    """The output of the command, as a terminal gets it."""
    output = bytearray()

    def read(descriptor):
        data = os.read(descriptor, 65536)
        output.extend(data)
        return data

    os.environ["COLUMNS"] = str(COLUMNS)
    status = pty.spawn(command, read)
    if status != 0:
        sys.exit(f"{command[0]} failed ({os.waitstatus_to_exitcode(status)})")
    return output.decode()


def spans(line):
    """A line as SVG, with its colors."""
    style, result = "", ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if part.startswith("\x1b"):
            codes = part[2:-1].split(";")
            style = " ".join(STYLES[code] for code in codes if code in STYLES)
        elif part:
            result += f"<tspan {style}>{html.escape(part)}</tspan>" if style else html.escape(part)
    return result


def shortened(lines, most):
    """The lines, with at most so many of each section. A section begins with a bold line."""
    sections = [[]]
    for line in lines:
        if line.startswith("\x1b[1m"):
            sections.append([])
        sections[-1].append(line)
    for section in sections:
        while section and not section[-1].strip():
            section.pop()
        left = len(section) - most
        yield from section if left <= 0 else section[:most] + [f"\x1b[2m… {left} more lines\x1b[0m"]
        yield ""


def cut(line):
    """The line, at most as long as the terminal is wide."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
    return line if len(plain) <= COLUMNS or plain != line else line[: COLUMNS - 1] + "…"


def main():
    target, most, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    lines = [f"$ {' '.join(command)}"]
    for line in record(command).replace("\r\n", "\n").split("\n"):
        # cargo's own progress is not part of the session.
        if not re.match(r"\s*(Compiling|Finished|Running|Blocking|Building|warning:)", re.sub(r"\x1b\[[0-9;]*m", "", line)):
            lines.append(cut(line))
    lines = list(shortened(lines, most))
    while not lines[-1].strip():
        lines.pop()
    width = max(len(re.sub(r"\x1b\[[0-9;]*m", "", line)) for line in lines)
    width, height = int(width * FONT * 0.602) + 32, len(lines) * LINE + 32
    with open(target, "w", encoding="utf-8") as svg:
        svg.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
                  f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
                  f'<g font-family="ui-monospace,Menlo,Consolas,monospace" font-size="{FONT}" fill="#e6edf3" xml:space="preserve">\n')
        for number, line in enumerate(lines):
            svg.write(f'<text x="16" y="{28 + number * LINE}">{spans(line)}</text>\n')
        svg.write("</g>\n</svg>\n")


if __name__ == "__main__":
    main()
