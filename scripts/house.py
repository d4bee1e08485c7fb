#!/usr/bin/env python3
"""The house rules that no other tool checks. Prints what breaks them and exits 1; large functions are only named.

- A room (a folder under src/) includes only rooms that stand before it in docs/architecture.md's table.
- Files of at most 1,500 lines; functions over 120 lines are listed for a hard look (tables and flat switches may stay).
- Every room has a README.md. Every header has a guard named after its path.
"""
import os
import re
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
ROOMS = re.findall(r"^\| `(\w+)` \|", open(os.path.join(TOP, "docs/architecture.md"), encoding="utf-8").read(), re.M)
# Rooms that need fewer than all those before them, as their READMEs say.
ONLY = {"collective": {"base", "tensor", "framework"},
        "graph": {"base", "proto", "tensor", "framework"},
        "runtime": {"base", "proto", "tensor", "framework", "graph"},
        "checkpoint": {"base", "proto", "tensor"},
        "ops": {"base", "proto", "tensor", "framework", "checkpoint"},
        "rpc": {"base"},
        "debug": {"base", "proto", "tensor", "framework", "graph", "checkpoint", "rpc"}}
FUNCTION_LINES, FILE_LINES = 120, 1500


def functions(lines):
    """(name, first line, length) of each function whose braces stand in column 0."""
    name = begin = None
    for i, line in enumerate(lines, 1):
        head = re.match(r"^[A-Za-z_][\w\s\*]*?(\w+)\s*\(", line)
        if begin is None and head and line.rstrip().endswith("}"):
            yield head.group(1), i, 1
        elif begin is None and head and not line.rstrip().endswith(";"):
            name, begin = head.group(1), i
        elif begin is not None and line.startswith("}"):
            yield name, begin, i - begin + 1
            begin = None
        elif begin is not None and line.rstrip().endswith(";") and i - begin < 6 and "{" not in "".join(lines[begin - 1:i]):
            begin = None


def check_includes(path, room, lines):
    allowed = ONLY.get(room, set(ROOMS[:ROOMS.index(room)])) | {room}
    is_test = path.endswith(("_test.c", "_fuzz.c")) or "testing" in path
    for i, line in enumerate(lines, 1):
        found = re.match(r'#include "(\w+)/', line)
        if found and found.group(1) in ROOMS and found.group(1) not in allowed and not is_test:
            yield "%s:%d: room %s may not include %s" % (path, i, room, found.group(1))


def check_guard(path, lines):
    guard = "TD_" + re.sub(r"\W", "_", os.path.relpath(path, "src")).upper() + "_"
    if not any(line == "#ifndef " + guard for line in lines):
        yield "%s: the guard is not %s" % (path, guard)


def main():
    os.chdir(TOP)
    broken, large = [], []
    for room in sorted(os.listdir("src")):
        if not os.path.isdir("src/" + room):
            continue
        if room not in ROOMS:
            broken.append("src/%s: no such room" % room)
            continue
        if not os.path.exists("src/%s/README.md" % room):
            broken.append("src/%s: no README.md" % room)
        for folder, _, files in os.walk("src/" + room):
            for name in sorted(files):
                path = os.path.join(folder, name)
                if not name.endswith((".c", ".h", ".inc")):
                    continue
                with open(path, errors="replace") as f:
                    lines = f.read().splitlines()
                broken += check_includes(path, room, lines)
                if name.endswith(".h"):
                    broken += check_guard(path, lines)
                if len(lines) > FILE_LINES and "_cases" not in name:
                    broken.append("%s: %d lines" % (path, len(lines)))
                large += ["%s:%d: %s() has %d lines" % (path, begin, function, length)
                          for function, begin, length in functions(lines) if length > FUNCTION_LINES]
    for line in large:
        print("house: look again: " + line)
    for line in broken:
        print("house: " + line)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
