#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""replay finds exactly what a brute-force simulation says it must."""

import json
import os
import random

from lru_sim import simulate
from tap import TRACE, ctl, done, equal, folder, ok, replay, skip, write_trace

QUICK = bool(os.environ.get('TOOLS_QUICK'))     # sanitizers are slow
KEYS = ['backend', 'requests', 'blocks', 'hits', 'hits_memory', 'hits_swap',
        'hit_rate', 'corrupt', 'swap_out_bytes', 'swap_in_bytes', 'seconds']

# ../shared/traces/README.md, column LRU
TABLE = [(1000, 0.0445), (3000, 0.0653), (5000, 0.1118), (10000, 0.2116),
         (20000, 0.2878), (30000, 0.3257), (50000, 0.3546)]


def found(r):
    if r.rc:
        return None
    j = r.json()
    return j['blocks'], j['hits_memory'], j['hits_swap'], j['corrupt']


def random_trace(rng, nr, ids, length):
    """Chains that share prefixes, branch, repeat ids, are empty at times."""
    chains, out, now = [[]], [], 0
    for _ in range(nr):
        now += rng.choice([0, 1, 5, 20, 100])
        base = rng.choice(chains[-40:])
        keep = base[:rng.randint(0, len(base))] if rng.random() < .5 else base
        new = [rng.randrange(ids) for _ in range(rng.randint(0, 4))]
        chain = (keep + new)[:length]
        if rng.random() < .05:
            chain = []
        if rng.random() < .1 and chain:
            chain = [chain[0]] * rng.randint(1, length)
        chains.append(chain)
        out.append((now, chain))
    return out


def against_simulation(path):
    rng = random.Random(4711)
    shapes = [(1, 0), (5, 0), (40, 0), (1, 1), (1, 30), (8, 3), (30, 60),
              (64, 64), (20, 200), (100, 7)]
    for n, (frames, slots) in enumerate(shapes[::3] if QUICK else shapes):
        for expiry in (None, 150):
            reqs = random_trace(rng, 300 if QUICK else 800, 50, 30)
            write_trace(path, reqs)
            args = ['--block-size', '4K', '--frames', frames, '--slots', slots]
            if expiry:
                args += ['--expiry', expiry]
            r = replay(path, *args)
            equal(found(r), (*simulate(reqs, frames, slots, expiry), 0),
                  f'random trace {n}: {frames} frames, {slots} slots'
                  f'{", expiry" if expiry else ""}: as simulated', r)


def defined_cases(path):
    def run(reqs, want, what, *args):
        write_trace(path, reqs)
        r = replay(path, '--block-size', '4K', *args)
        equal(found(r), (*want, 0), what, r)

    run([[5, 5, 5], [5, 5, 5, 5]], (7, 3, 0),
        'a repeated id in a request is a block of its own')
    run([[1, 2, 3], [9, 2, 3], [1, 2, 3]], (9, 3, 0),
        'an id under two parents is two blocks')
    run([[1, 2, 3], [2, 3]], (5, 0, 0), 'the middle of a chain is no prefix')
    run([list(range(500)), list(range(500))], (1000, 10, 0),
        'of a request longer than --frames the front stays',
        '--frames', 10)
    run([list(range(500)), list(range(500))], (1000, 10, 20),
        'and what is behind it is in the slots', '--frames', 10,
        '--slots', 20)
    run([(0, [1, 2]), (99, [1, 2]), (198, [1, 2]), (298, [1, 2])], (8, 4, 0),
        'a hit puts expiry off, and time is the trace\'s', '--expiry', 100)
    run([(0, [1, 2]), (0, [3, 4]), (100, [1, 2])], (6, 0, 0),
        'a swapped block expires too', '--frames', 2, '--slots', 8,
        '--expiry', 100)
    run([(5000000000, [1]), (5000000001, [1])], (2, 1, 0),
        'a trace that starts late', '--expiry', 100)


def output(path):
    write_trace(path, [[1, 2, 3], [1, 2, 4]])
    r = replay(path)
    equal(list(json.loads(r.out))[:len(KEYS)], KEYS, 'the keys of --json')
    j = r.json()
    equal((j['backend'], j['requests'], j['blocks'], j['hits'], j['hit_rate'],
           j['swap_out_bytes'], j['block_size']),
          ('user', 2, 6, 2, 0.333333, 0, 65536), 'their values')
    r = replay(path, '--block-size', '4K', '--frames', 1, '--slots', 4)
    j = r.json()
    # 3 blocks, 1 stays; 2 come: 1 and 2 are found, 3, 4 and 2 go
    equal((j['hits_memory'], j['hits_swap'], j['swap_in_bytes'],
           j['swap_out_bytes']), (1, 1, 4096, 4 * 4096 - 4096),
          'bytes swapped in and out', r)
    r = ctl('replay', path, '--slots', 10, '--frames', 10)
    for word in ('backend', 'requests', 'blocks', 'in memory', 'in swap',
                 'hit rate', 'corrupt', 'swapped out', 'swapped in', 'MB/s',
                 'user'):
        ok(word in r.out, f'the text output has {word}', r)
    r = ctl('replay', '-', '--json', stdin=open(path, 'rb').read())
    equal(found(r), (6, 2, 0, 0), 'a trace on standard input', r)
    r = replay(path, '--limit', 1)
    equal(found(r), (3, 0, 0, 0), '--limit 1', r)
    swap = os.path.join(os.path.dirname(path), 'swap')
    with open(swap, 'w') as f:
        f.write('what was there before')
    r = replay(path, '--swap', swap, '--frames', 1, '--slots', 8)
    ok(found(r) == (6, 1, 1, 0) and not os.path.exists(swap),
       '--swap: made anew, and nothing is left of it', r)
    os.link(path, swap)
    r = ctl('replay', path, '--swap', swap)
    ok(r.rc == 1 and 'is the trace, and would be lost' in r.err and
       os.path.getsize(swap), '--swap: not the trace, under whatever name', r)
    with open(path, 'rb') as f:
        r = ctl('replay', '-', '--swap', swap, stdin=f)
    ok(r.rc == 1 and 'is the trace, and would be lost' in r.err and
       os.path.getsize(swap), 'nor what is read on standard input', r)
    os.unlink(swap)
    r = replay(path, '--swap', swap, '--frames', 1)
    equal((r.json()['slots'], found(r)), (4, (6, 1, 1, 0)),
          '--swap without --slots: four times --frames', r)


def conversation():
    if not os.path.exists(TRACE):
        skip('conversation trace', f'{TRACE} is absent')
        return
    for frames, rate in TABLE[::3] if QUICK else TABLE:
        r = replay(TRACE, '--policy', 'lru', '--block-size', '4K', '--slots',
                   0, '--frames', frames)
        ok(r.rc == 0 and f'{r.json()["hit_rate"]:.4f}' == f'{rate:.4f}' and
           r.json()['corrupt'] == 0,
           f'conversation trace, {frames} frames: hit rate {rate:.4f}', r)
    if QUICK:
        return
    reqs = []
    with open(TRACE) as f:
        for line in f:
            j = json.loads(line)
            reqs.append((j['timestamp'], j['hash_ids']))
            if len(reqs) == 2000:
                break
    r = replay(TRACE, '--block-size', '4K', '--limit', 2000, '--frames', 1000,
               '--slots', 4000)
    equal(found(r), (*simulate(reqs, 1000, 4000), 0),
          'conversation trace, 2000 requests, 1000 frames, 4000 slots: as '
          'simulated', r)
    j = r.json()
    ok(j['hits_memory'] and j['hits_swap'] and j['purged'],
       'both tiers are used, and slots overflow', r)


with folder() as d:
    file = os.path.join(d, 'trace.jsonl')
    defined_cases(file)
    output(file)
    against_simulation(file)
conversation()
done()
