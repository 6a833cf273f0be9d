#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the copy kernel's PTX in an interpreter and compares memory.

    ptx.py FILE      the PTX, as `shim --ptx` prints it

The stand-in driver carries out what the kernel is meant to do; this carries
out what it says, instruction by instruction, for every thread.  Each thread
runs to its end before the next starts, which is as good an order as any: the
kernel's threads don't communicate.  TAP on stdout.
"""
import random
import re
import struct
import sys

DESCS = 100
THREADS = 256


def parse(text):
    """Entry name -> (instructions, labels)."""
    kernels = {}
    for name, body in re.findall(
            r"\.visible \.entry (\w+)\([^)]*\)\s*\{(.*?)\n\}", text, re.S):
        code, labels = [], {}
        for line in body.splitlines():
            line = line.strip().rstrip(";")
            if not line or line.startswith(".reg"):
                continue
            if line.endswith(":"):
                labels[line[:-1]] = len(code)
                continue
            m = re.match(r"(?:@(%\w+)\s+)?(\S+)(?:\s+(.*))?$", line)
            pred, op, rest = m.groups()
            args = re.findall(r"\{[^}]*\}|\[[^]]*\]|[^,\s]+", rest or "")
            code.append((pred, op, args))
        kernels[name] = (code, labels)
    return kernels


WIDTH = {"u8": 1, "u32": 4, "u64": 8, "b64": 8, "f32": 4, "v4.u32": 16,
         "v4.f32": 16}


def real(data):
    """A 32-bit float's bytes as a number; whole ones stay exact."""
    return struct.unpack("<f", data)[0]


class Memory:
    """A flat memory that knows what may be read and written."""

    def __init__(self, size):
        self.data = bytearray(random.randbytes(size))

    def load(self, addr, n):
        assert addr % n == 0, f"misaligned load of {n} at {addr}"
        assert 0 <= addr and addr + n <= len(self.data), "load outside"
        return bytes(self.data[addr:addr + n])

    def store(self, addr, value):
        n = len(value)
        assert addr % n == 0, f"misaligned store of {n} at {addr}"
        assert 0 <= addr and addr + n <= len(self.data), "store outside"
        self.data[addr:addr + n] = value


def run_thread(kernel, args, mem, tid, ctaid, nctaid, params={"args": 0}):
    """params: names of parameters and where they are in args."""
    code, labels = kernel
    regs = {"%tid.x": tid, "%ctaid.x": ctaid[0], "%ctaid.y": ctaid[1],
            "%nctaid.x": nctaid}
    base = 0x1000000    # where the parameters are in parameter space

    def value(a):
        if a in params:
            return base + params[a]
        v = regs[a] if a.startswith("%") else int(a)
        return int.from_bytes(v, "little") if isinstance(v, bytes) else v

    def address(a):
        reg, _, off = a.strip("[]").partition("+")
        return value(reg) + int(off or 0)

    pc = steps = 0
    while True:
        pred, op, a = code[pc]
        pc += 1
        steps += 1
        assert steps < 1000000, "the kernel doesn't end"
        if pred and not regs[pred]:
            continue
        kind = op.split(".")[0]
        mask = 0xffffffff
        if op.endswith(("64", "wide.u32")):
            mask = (1 << 64) - 1
        if op == "ret":
            return
        elif kind == "bra":
            pc = labels[a[0]]
        elif op.startswith("ld.param"):
            off, n = address(a[1]) - base, WIDTH[op.split(".")[2]]
            assert off % n == 0 and 0 <= off <= len(args) - n
            regs[a[0]] = int.from_bytes(args[off:off + n], "little")
        elif op.startswith("ld.global."):
            n = WIDTH[op[len("ld.global."):]]
            data = mem.load(address(a[1]), n)
            for i, r in enumerate(re.findall(r"%\w+", a[0])):
                regs[r] = data[4 * i:4 * i + 4]
        elif op.startswith("st.global."):
            n = WIDTH[op[len("st.global."):]]
            data = b"".join(regs[r] for r in re.findall(r"%\w+", a[1]))
            assert len(data) == n
            mem.store(address(a[0]), data)
        elif op in ("mov.b64", "mov.u32", "cvt.u64.u32"):
            regs[a[0]] = value(a[1])
        elif kind == "add":
            regs[a[0]] = (value(a[1]) + value(a[2])) & mask
        elif kind == "shl":
            regs[a[0]] = (value(a[1]) << value(a[2])) & mask
        elif op == "shr.u32":
            regs[a[0]] = value(a[1]) >> value(a[2])
        elif op == "and.b32":
            regs[a[0]] = value(a[1]) & value(a[2])
        elif op == "mad.wide.u32":
            regs[a[0]] = (value(a[1]) * value(a[2]) + value(a[3])) & mask
        elif op == "mov.f32":
            assert a[1].startswith("0f")
            regs[a[0]] = int(a[1][2:], 16).to_bytes(4, "little")
        elif op == "fma.rn.f32":
            x, y, z = (real(regs[r]) for r in a[1:])
            regs[a[0]] = struct.pack("<f", x * y + z)
        elif op == "red.global.add.u64":
            at = address(a[0])
            total = int.from_bytes(mem.load(at, 8), "little") + value(a[1])
            mem.store(at, (total & mask).to_bytes(8, "little"))
        elif op == "mul.wide.u32":
            regs[a[0]] = value(a[1]) * value(a[2])
        elif op == "mad.lo.u64":
            regs[a[0]] = (value(a[1]) * value(a[2]) + value(a[3])) & mask
        elif op == "setp.ge.u32":
            regs[a[0]] = value(a[1]) >= value(a[2])
        elif op == "setp.lt.u32":
            regs[a[0]] = value(a[1]) < value(a[2])
        else:
            raise AssertionError(f"unknown instruction {op}")


def layout(unit):
    """A few groups of fragments that don't overlap, and their memory."""
    descs, at = [], 0

    def place(n):
        nonlocal at
        at += unit * random.randrange(3)
        where, at = at, at + n
        return where

    for _ in range(random.randrange(1, 4)):
        # from less than one step of a block to more than four
        size = unit * random.choice(
            [1, random.randrange(1, 300), random.randrange(1000, 1500)])
        count = random.randrange(1, 4)
        gaps = [size + unit * random.randrange(4) for _ in range(2)]
        src = place(gaps[0] * count)
        dst = place(gaps[1] * count)
        descs.append((src, dst, gaps[0], gaps[1], size, count))
    return descs, at


def try_one(kernel, unit):
    descs, size = layout(unit)
    mem = Memory(size)
    want = bytearray(mem.data)
    for src, dst, ss, ds, n, count in descs:
        for i in range(count):
            want[dst + i * ds:dst + i * ds + n] = \
                mem.data[src + i * ss:src + i * ss + n]
    args = struct.pack("<II", len(descs), 0)
    args += b"".join(struct.pack("<QQQQII", *d) for d in descs)
    args += bytes(8 + 40 * DESCS - len(args))
    width = random.randrange(1, 4)
    for y in range(len(descs)):
        for x in range(width):
            for tid in range(THREADS):
                run_thread(kernel, args, mem, tid, (x, y), width)
    return mem.data == want


def main():
    random.seed(1)
    with open(sys.argv[1], encoding="ascii") as f:
        kernels = parse(f.read())
    bad = 0
    units = (16, 4, 1)
    for i, unit in enumerate(units):
        name = f"kvmm_copy_{unit}"
        why = ""
        try:
            good = all(try_one(kernels[name], unit) for _ in range(2))
        except (AssertionError, KeyError) as e:
            good, why = False, f"# {type(e).__name__}: {e}\n"
        bad += not good
        print(f"{why}{'' if good else 'not '}ok {i + 1} - "
              f"{name} copies what it should")
    print(f"1..{len(units)}")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
