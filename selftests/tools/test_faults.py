#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What goes wrong: a disk that changes data, no room, signals."""

import json
import os
import re
import resource
import signal
import subprocess
import time

from tap import KVMMCTL, ctl, done, equal, folder, ok, replay, write_trace

BLOCK = 4096
SLOTS = 4000


def cycles(path, chains, length, rounds):
    """Chains in turn: each is swapped out long before it comes again."""
    write_trace(path, [[c * length + i for i in range(length)]
                       for _ in range(rounds) for c in range(chains)])


def renewed(path, chains, length, rounds):
    """Every other chain is new: there is something to write until the end."""
    requests = []
    for n in range(rounds * chains):
        for first in (n % chains * length, 10**6 + n * length):
            requests.append([first + i for i in range(length)])
    write_trace(path, requests)


def start(trace, *args, **kwargs):
    return subprocess.Popen(
        [KVMMCTL, '--backend', 'user', 'replay', trace, '--json',
         '--block-size', str(BLOCK), *map(str, args)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)


def wait_for(cond, seconds=30):
    end = time.monotonic() + seconds
    while not cond():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def area_of(p):
    """The swap area of a replay, which has no name, once the pool has it:
    then there is one descriptor left, with O_DIRECT."""
    found = []
    try:
        for fd in os.listdir(f'/proc/{p.pid}/fd'):
            path = f'/proc/{p.pid}/fd/{fd}'
            link = os.readlink(path)
            if link.endswith(' (deleted)') and not link.startswith('/memfd:'):
                with open(f'/proc/{p.pid}/fdinfo/{fd}') as f:
                    flags = int(re.search(r'flags:\s*(\d+)', f.read())[1], 8)
                found.append((path, flags))
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(found) == 1 and found[0][1] & os.O_DIRECT:
        return found[0][0]
    return None


def disturb(trace, swap, harm, *args):
    """Runs a replay and does harm(process, file, round) until it ends."""
    p = start(trace, '--frames', 100, '--slots', SLOTS, '--swap', swap, *args)
    if not wait_for(lambda: area_of(p) or p.poll() is not None):
        p.kill()
    fd = -1
    try:
        fd = os.open(area_of(p) or '/nowhere/area', os.O_WRONLY)
        n = 0
        while p.poll() is None:
            harm(p, fd, n)
            n += 1
    except FileNotFoundError:
        pass
    finally:
        if fd >= 0:
            os.close(fd)
    out, err = p.communicate(timeout=60)
    j = json.loads(out.decode()) if out else {}
    return p.returncode, j, err.decode()


def scribble(p, fd, n):
    os.pwrite(fd, b'scribble', n % SLOTS * BLOCK + 1000)


def truncate(p, fd, n):
    os.ftruncate(fd, 0)
    time.sleep(0.01)


def forbid_writes(p, fd, n):
    if n == 3:
        try:
            resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (BLOCK, BLOCK))
        except ProcessLookupError:
            pass                # ended already: the test will say so
    time.sleep(0.01)


def corruption(trace, swap):
    cycles(trace, 60, 20, 10)
    r = replay(trace, '--block-size', BLOCK, '--frames', 100, '--slots', SLOTS)
    good = r.json()
    ok(good['corrupt'] == 0 and good['hits_swap'] > 8000,
       'nothing is corrupt while nobody scribbles', r)
    rc, j, err = disturb(trace, swap, scribble, '--no-checksum')
    ok(rc == 2 and j.get('corrupt', 0) > 0 and j['hits'] == good['hits'],
       'scribbling without checksums: corrupt blocks, exit 2', rc, j, err)
    # a write through the page cache may bring back more old bytes than its own
    ok(1 <= err.count('\n') <= 5 and
       all(re.fullmatch(r'kvmmctl replay: corrupt: request \d+, block \d+, id '
                        r'\d+, from (swap|memory): byte \d+: expected '
                        r'[0-9a-f]{16}, got [0-9a-f]{16}', line)
           for line in err.splitlines()),
       'the first few are told: where, what was expected, what was got', err)
    rc, j, err = disturb(trace, swap, scribble)
    ok(rc == 0 and j['corrupt'] == 0 and j['checksum_errors'] > 0 and
       j['hits'] < good['hits'],
       'scribbling with checksums: misses, and nothing corrupt', rc, j, err)
    ok(err.count('\n') == 9 and
       err.endswith('kvmmctl replay: further warnings are not shown\n'),
       'a thousand bad blocks are not told one by one', err)
    # frames, alloc or publish must not be lost with the blocks
    equal(j.get('unstored'), 0, 'and every block finds a place again', j)
    rc, j, err = disturb(trace, swap, truncate)
    ok(rc == 0 and j['corrupt'] == 0 and j['hits'] < good['hits'] and
       j['read_errors'] + j['checksum_errors'] > 0,
       'a swap file that is cut off: misses, and nothing corrupt', rc, j, err)
    renewed(trace, 30, 20, 40)
    rc, j, err = disturb(trace, swap, forbid_writes)
    ok(rc == 0 and j['corrupt'] == 0 and j['write_errors'] > 0 and
       j['hits_swap'] > 0 and
       j['purged'] > 0 and 'the swap area failed' in err,
       'a disk that takes no more: blocks are lost, none is wrong', rc, j, err)


def no_room(trace, swap):
    write_trace(trace, [[1, 2, 3]])
    r = replay(trace, '--block-size', '256M', '--frames', 100000)
    ok(r.rc == 1 and not r.out and r.err.count('\n') == 1 and
       'the pool needs ' in r.err and 'of memory for 100,003 frames' in r.err,
       'too little memory is told at the start', r)
    r = replay(trace, '--block-size', '256M', '--frames', 1, '--slots',
               10000000, '--swap', swap)
    ok(r.rc == 1 and not os.path.exists(swap) and
       'the swap area needs ' in r.err and r.err.count('\n') == 1,
       'too little disk is told at the start', r)
    r = replay(trace, '--block-size', '256M', '--frames', 1, '--slots',
               10000000)
    ok(r.rc == 1 and 'the swap area needs ' in r.err and ' free' in r.err and
       r.err.count('\n') == 1, 'also for an area without a name', r)
    r = replay(trace, '--slots', 8, '--swap', '/nowhere/swap')
    ok(r.rc == 1 and r.err.count('\n') == 1 and '/nowhere/swap' in r.err,
       'a swap file that can\'t be made', r)
    r = ctl('demo', '--memory', '10T', '--disk', '1G', '--block-size', '1M')
    ok(r.rc == 1 and 'the pool needs ' in r.err and
       'give less --memory' in r.err and r.err.count('\n') == 1,
       'demo: too little memory', r)
    for args in (['--swap', swap], []):
        p = start(trace, '--frames', 1, '--slots', SLOTS, *args,
                  preexec_fn=lambda: resource.setrlimit(
                      resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
        _, err = p.communicate(timeout=60)
        err = err.decode()
        ok(p.returncode == 1 and not os.path.exists(swap) and
           'swap area' in err and err.count('\n') == 1,
           f'a limit on file size{" of a file without a name" * (not args)}',
           p.returncode, err)


def signals(trace, folder_, swap):
    cycles(trace, 60, 20, 1000)
    for sig in (signal.SIGINT, signal.SIGTERM):
        p = start(trace, '--frames', 100, '--slots', SLOTS, '--swap', swap)
        wait_for(lambda: area_of(p))
        time.sleep(0.3)
        p.send_signal(sig)
        out, err = p.communicate(timeout=30)
        ok(p.returncode == -sig and not out and
           b'interrupted after ' in err and not os.path.exists(swap),
           f'{sig.name} ends a replay, and its file goes', p.returncode, out,
           err)
    before = sorted(os.listdir(folder_))
    p = start(trace, '--frames', 100, '--slots', SLOTS, '--swap', swap)
    ok(wait_for(lambda: area_of(p)), 'an area is made')
    p.kill()
    p.communicate(timeout=30)
    equal((p.returncode, sorted(os.listdir(folder_))),
          (-signal.SIGKILL, before), 'SIGKILL leaves no file')
    p = start(trace, '--frames', 100, '--slots', SLOTS,
              env=dict(os.environ, TMPDIR=folder_))
    time.sleep(1)
    equal(sorted(os.listdir(folder_)), before,
          'an area without a name has no name')
    p.kill()
    p.communicate(timeout=30)
    equal(sorted(os.listdir(folder_)), before, 'SIGKILL leaves nothing either')
    p = subprocess.Popen([KVMMCTL, 'replay', '-'], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.3)
    p.send_signal(signal.SIGINT)
    try:
        p.wait(timeout=10)
    except subprocess.TimeoutExpired:
        p.kill()
    equal(p.returncode, -signal.SIGINT, 'SIGINT while the trace is read')
    p.communicate()


with folder() as d:
    file, area = os.path.join(d, 'trace.jsonl'), os.path.join(d, 'swap')
    corruption(file, area)
    no_room(file, area)
    signals(file, d, area)
done()
