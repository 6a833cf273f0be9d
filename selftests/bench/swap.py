#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Swap benchmark: the user backend against fio.

Both write and read the same file, which lies there at its whole size and was
written before, in turn and in the same run.  fio keeps 64 requests in flight;
the library, told to move everything in one call, up to 128 by itself: so fio
also runs with 128, and the faster of its two counts.  Medians of the rounds;
spread is (max - min) / median.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

GIB = 1 << 30
WAYS = {"out": "write", "in": "read"}


def size(text):
    """Bytes; K, M and G are powers of 1024."""
    unit = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper())
    return int(text[:-1]) << unit if unit else int(text)


def unit_name(number):
    for shift, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if number % (1 << shift) == 0:
            return f"{number >> shift} {name}"
    return f"{number} B"


def prewrite(path, total):
    with open(path, "wb") as f:
        chunk = os.urandom(1 << 20)
        for _ in range(total >> 20):
            f.write(chunk)
        f.flush()
        os.fsync(f.fileno())


def run_kvmm(args, block, checksum=False):
    cmd = [args.program, args.file, str(block), str(args.bytes // block)]
    if checksum:
        cmd.append("checksum")
    out = subprocess.run(cmd, check=True, stdout=subprocess.PIPE, text=True)
    got = json.loads(out.stdout)
    if got["io"] != "io_uring":
        print(f"note: the library moves data by {got['io']}", file=sys.stderr)
    return {
        way: {
            "mbps": got[way]["bytes"] / got[way]["seconds"] / 1e6,
            "cpu": (got[way]["user"] + got[way]["sys"])
            / (got[way]["bytes"] / GIB),
        }
        for way in WAYS
    }


def run_fio(args, block, depth):
    result = {}
    for way, rw in WAYS.items():
        # nothing that costs fio time without moving data
        cmd = [
            "fio", f"--name={way}", f"--filename={args.file}",
            f"--size={args.bytes}", f"--rw={rw}", f"--bs={block}",
            f"--iodepth={depth}", "--ioengine=io_uring", "--direct=1",
            "--fixedbufs=1", "--registerfiles=1", "--scramble_buffers=0",
            "--gtod_reduce=1", "--thread", "--output-format=json",
        ]
        out = subprocess.run(cmd, check=True, stdout=subprocess.PIPE,
                             text=True)
        # fio may print a note before the JSON
        job = json.loads(out.stdout[out.stdout.index("{"):])["jobs"][0]
        busy = (job["usr_cpu"] + job["sys_cpu"]) / 100
        result[way] = {
            "mbps": job[rw]["io_bytes"] / (job[rw]["runtime"] / 1e3) / 1e6,
            "cpu": busy * job["job_runtime"] / 1e3
            / (job[rw]["io_bytes"] / GIB),
        }
    return result


def summary(rounds, way):
    mbps = [r[way]["mbps"] for r in rounds]
    cpu = [r[way]["cpu"] for r in rounds]
    middle = statistics.median(mbps)
    return {
        "mb_per_second": round(middle, 1),
        "cpu_seconds_per_gib": round(statistics.median(cpu), 4),
        "spread": round((max(mbps) - min(mbps)) / middle, 3),
        "rounds": [round(v, 1) for v in mbps],
    }


def measure(args, block):
    """One block size: rows for out and in."""
    who = {
        "kvmm": lambda: run_kvmm(args, block),
        "fio64": lambda: run_fio(args, block, 64),
        "fio128": lambda: run_fio(args, block, 128),
    }
    order = list(who)
    rounds = {name: [] for name in who}
    for k in range(args.rounds):
        # whoever comes first has the disk at its best, or at its worst
        for name in order[k % 3:] + order[:k % 3]:
            rounds[name].append(who[name]())
            print(f"  {unit_name(block)} round {k + 1} {name}",
                  file=sys.stderr)
    checked = run_kvmm(args, block, checksum=True)
    rows = []
    for way in WAYS:
        row = {name: summary(rounds[name], way) for name in who}
        best = max(row["fio64"], row["fio128"],
                   key=lambda r: r["mb_per_second"])
        row.update({
            "block_size": block,
            "way": way,
            "ratio": round(row["kvmm"]["mb_per_second"]
                           / best["mb_per_second"], 3),
            "cpu_ratio": round(
                row["kvmm"]["cpu_seconds_per_gib"]
                / max(row["fio64"]["cpu_seconds_per_gib"], 1e-9), 3),
            "kvmm_checksum": {
                "mb_per_second": round(checked[way]["mbps"], 1),
                "cpu_seconds_per_gib": round(checked[way]["cpu"], 4),
            },
        })
        rows.append(row)
    return rows


def machine():
    """What else there is to know of a result."""
    return (f"{os.cpu_count()} CPUs, load average before: "
            f"{os.getloadavg()[0]:.1f}")


def print_table(args, rows):
    print(args.machine)
    print(f"swap, {unit_name(args.bytes)} a round, {args.rounds} rounds, "
          "medians; CPU is user + system seconds per GiB")
    print(f"{'':14} {'MB/s':>27} {'spread':>8} {'CPU s/GiB':>17}")
    print(f"{'block, way':14} {'kvmm':>8} {'fio 64':>8} {'fio 128':>9} "
          f"{'kvmm/fio':>8} {'kvmm':>8} {'fio 64':>8} {'ratio':>6} "
          f"{'throughput':>11}")
    for row in rows:
        spread = max(row[n]["spread"] for n in ("kvmm", "fio64", "fio128"))
        print(f"{unit_name(row['block_size']):>8} {row['way']:5} "
              f"{row['kvmm']['mb_per_second']:8.0f} "
              f"{row['fio64']['mb_per_second']:8.0f} "
              f"{row['fio128']['mb_per_second']:9.0f} "
              f"{spread:8.0%} "
              f"{row['kvmm']['cpu_seconds_per_gib']:8.3f} "
              f"{row['fio64']['cpu_seconds_per_gib']:8.3f} "
              f"{row['cpu_ratio']:6.2f} "
              f"{row['ratio']:11.2f}")
    for row in rows:
        c = row["kvmm_checksum"]
        print(f"with checksums, one round: {unit_name(row['block_size'])} "
              f"{row['way']}: {c['mb_per_second']:.0f} MB/s, "
              f"{c['cpu_seconds_per_gib']:.3f} CPU s/GiB")
    if any(row[n]["spread"] > 0.2 for row in rows
           for n in ("kvmm", "fio64", "fio128")):
        print("the rounds differ by more than 20%: something else uses the "
              "disk or the CPUs, so take the ratios with care")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="the swap program")
    parser.add_argument("--file", required=True, help="made, and removed")
    parser.add_argument("--bytes", type=size, default="1G")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.machine = machine()
    rows = []
    prewrite(args.file, args.bytes)
    try:
        for block in (64 << 10, 2 << 20):
            rows += measure(args, block)
    finally:
        os.unlink(args.file)
    if args.json:
        print(json.dumps({"bench": "swap", "bytes": args.bytes,
                          "rounds": args.rounds, "machine": args.machine,
                          "results": rows}))
    else:
        print_table(args, rows)


if __name__ == "__main__":
    main()
