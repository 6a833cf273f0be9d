# SPDX-License-Identifier: MIT
"""What a replay must find, worked out the slow and obvious way.

One list of blocks, youngest first.  The first `frames` of them are in memory,
the next `slots` in the swap area, the rest is lost.  Knows nothing of how kvmm
does it.
"""


class Names:
    """Short names for chains: number of (name of the parent, id)."""

    def __init__(self):
        self.known = {}

    def chain(self, ids):
        out, parent = [], 0
        for i in ids:
            parent = self.known.setdefault((parent, i), len(self.known) + 1)
            out.append(parent)
        return out


def simulate(requests, frames, slots, expiry=None):
    """requests: list of (ms, ids).  Returns (blocks, in memory, in swap)."""
    order, touched, names = [], {}, Names()
    blocks = memory = swap = 0
    for now, ids in requests:
        keys = names.chain(ids)
        blocks += len(keys)
        place = {k: i for i, k in enumerate(order)}
        for k in keys:
            if k not in place:
                break
            if expiry is not None and now - touched[k] >= expiry:
                break
            if place[k] < frames:
                memory += 1
            else:
                swap += 1
        mine = set(keys)
        order = keys + [k for k in order if k not in mine]
        del order[frames + slots:]
        for k in keys:
            touched[k] = now
    return blocks, memory, swap
