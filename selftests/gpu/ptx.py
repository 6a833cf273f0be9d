#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the PTX of the GPU checks in an interpreter and compares memory.

    ptx.py FILE      the PTX, as `kvmm-gpu-check --ptx` prints it

See selftests/shim/ptx.py, whose interpreter this is.  TAP on stdout.
"""
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../shim"))
from ptx import Memory, parse, run_thread  # noqa: E402

THREADS = 256


def read(kernel):
    """Frames of a size that threads share unevenly, in two blocks each."""
    frames, size, width = 2, 16 * 700, 2
    mem = Memory(frames * size + 8 * frames)
    out = frames * size
    before = struct.unpack_from(f"<{frames}Q", mem.data, out)
    args = struct.pack("<QQI4x", 0, out, size)
    where = {"base": 0, "out": 8, "bytes": 16}
    for y in range(frames):
        for x in range(width):
            for tid in range(THREADS):
                run_thread(kernel, args, mem, tid, (x, y), width, where)
    for f in range(frames):
        words = struct.unpack_from(f"<{size // 4}I", mem.data, f * size)
        want = before[f] + sum(w * (2 * i + 1) for i, w in enumerate(words))
        got, = struct.unpack_from("<Q", mem.data, out + 8 * f)
        if got != want % (1 << 64):
            return False
    return True


def product(kernel):
    """Some threads of each block: each has four rows of four columns."""
    n = 128
    mem = Memory(3 * 4 * n * n)
    a = [[(7 * i + 3 * k) % 9 - 4 for k in range(n)] for i in range(n)]
    b = [[(5 * k + 2 * j) % 7 - 3 for j in range(n)] for k in range(n)]
    for at, m in ((0, a), (4 * n * n, b)):
        struct.pack_into(f"<{n * n}f", mem.data, at, *sum(m, []))
    args = struct.pack("<QQQI4x", 0, 4 * n * n, 8 * n * n, n)
    where = {"a": 0, "b": 8, "c": 16, "n": 24}
    for y in range(n // 32):
        for tid in [0, 31, 255, *random.sample(range(THREADS), 2)]:
            run_thread(kernel, args, mem, tid, (0, y), 1, where)
            for i in range(32 * y + tid // 32 * 4, 32 * y + tid // 32 * 4 + 4):
                for j in range(tid % 32 * 4, tid % 32 * 4 + 4):
                    want = sum(a[i][k] * b[k][j] for k in range(n))
                    got, = struct.unpack_from(
                        "<f", mem.data, 8 * n * n + 4 * (i * n + j))
                    if got != want:
                        return False
    return True


def main():
    random.seed(1)
    with open(sys.argv[1], encoding="ascii") as f:
        kernels = parse(f.read())
    bad = 0
    tests = (("kvmm_read", read), ("kvmm_product", product))
    for i, (name, test) in enumerate(tests):
        why = ""
        try:
            good = test(kernels[name])
        except (AssertionError, KeyError) as e:
            good, why = False, f"# {type(e).__name__}: {e}\n"
        bad += not good
        print(f"{why}{'' if good else 'not '}ok {i + 1} - "
              f"{name} computes what it should")
    print(f"1..{len(tests)}")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
