#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Report which lines of the kernel module were run.

The kernel hands out .gcda files under /sys/kernel/debug/gcov, by the full path
of the object they belong to. gcov reads them beside the .gcno files, which the
build has left by the objects. Counts of several boots, and of functions in
headers that several objects have, are added up.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict


def gcda_files(folders):
    for folder in folders:
        for where, _, names in os.walk(folder):
            for name in sorted(names):
                if name.endswith(".gcda"):
                    path = os.path.join(where, name)
                    yield path, os.path.splitext(
                        path.split("/debug/gcov", 1)[-1])[0]


def run_gcov(gcda, obj):
    """What gcov says of one object, as the parsed JSON."""
    if not os.path.exists(obj + ".gcno"):
        sys.exit(f"coverage: no {obj}.gcno: built since the tests ran?")
    with tempfile.TemporaryDirectory() as tmp:
        shutil.copy(gcda, tmp + "/x.gcda")
        shutil.copy(obj + ".gcno", tmp + "/x.gcno")
        out = subprocess.run(
            ["gcov", "--json-format", "--stdout", "x.gcda"], cwd=tmp,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    return json.loads(out.stdout)


def short(path, objects):
    """kmod/... of this project's files, else None."""
    path = os.path.normpath(path)
    if not path.startswith(objects + "/"):
        return None
    path = path[len(objects) + 1:]
    path = path.split("/", 1)[1] if path.startswith("kmod-") else path
    return path if path.startswith("kmod/") else None


def ranges(numbers):
    """1-3, 7"""
    out = []
    for n in sorted(numbers):
        if out and out[-1][1] == n - 1:
            out[-1][1] = n
        else:
            out.append([n, n])
    return ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", required=True,
                        help="folder the module was built in")
    parser.add_argument("--lines", required=True,
                        help="file for the lines that were not run")
    parser.add_argument("--under", type=float, default=0,
                        help="fail below this percentage of all lines")
    parser.add_argument("folders", nargs="+", help="what the VMs gave back")
    args = parser.parse_args()
    objects = os.path.realpath(args.objects)

    counts = defaultdict(lambda: defaultdict(int))
    names = defaultdict(dict)
    seen = 0
    for gcda, obj in gcda_files(args.folders):
        if not obj.startswith(objects + "/"):
            continue
        seen += 1
        for one in run_gcov(gcda, obj)["files"]:
            path = short(one["file"], objects)
            if not path:
                continue
            for line in one["lines"]:
                counts[path][line["line_number"]] += line["count"]
                names[path][line["line_number"]] = line.get(
                    "function_name", "")
    if not seen:
        sys.exit("coverage: the VM gave back no counts of the module")

    top = os.path.normpath(os.path.join(os.path.dirname(__file__), "../.."))
    total = hit = 0
    with open(args.lines, "w", encoding="utf-8") as out:
        print(f"# {'lines':>6} {'run':>6} {'percent':>8}  file")
        for path in sorted(counts):
            lines = counts[path]
            run = sum(1 for n in lines.values() if n)
            total += len(lines)
            hit += run
            missed = [n for n, count in lines.items() if not count]
            print(f"# {len(lines):6} {run:6} {100 * run / len(lines):7.1f}%"
                  f"  {path}")
            if not missed:
                continue
            print(f"{path}: {len(missed)} of {len(lines)} lines not run:"
                  f" {ranges(missed)}", file=out)
            with open(os.path.join(top, path), encoding="utf-8") as src:
                text = src.read().split("\n")
            function = None
            for n in sorted(missed):
                if names[path][n] != function:
                    function = names[path][n]
                    print(f"  {function}:", file=out)
                print(f"{n:6}: {text[n - 1]}", file=out)
    percent = 100 * hit / total
    ok = percent >= args.under
    print(f"# {total:6} {hit:6} {percent:7.1f}%  all")
    print(f"{'ok' if ok else 'not ok'} - lines of the module that were run:"
          f" {percent:.1f}%, {args.under:g}% asked; the others are named in"
          f" {os.path.relpath(args.lines)}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
