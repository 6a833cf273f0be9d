# SPDX-License-Identifier: MIT
"""TAP for the tests of kvmmctl, and running it: every test file uses this."""

import json
import os
import subprocess
import sys
import tempfile

KVMMCTL = os.environ.get('KVMMCTL', 'build/release/tools/kvmmctl/kvmmctl')
TRACE = '../shared/traces/mooncake-conversation.jsonl'

_count = 0
_failed = 0


def ok(cond, what, *details):
    """One test; the details are printed where it fails."""
    global _count, _failed
    _count += 1
    print(f'{"ok" if cond else "not ok"} {_count} - {what}', flush=True)
    if not cond:
        _failed += 1
        for d in details:
            for line in str(d).splitlines() or ['(empty)']:
                print(f'#   {line}', flush=True)
    return cond


def equal(got, want, what, *details):
    return ok(got == want, what, f'got:  {got!r}', f'want: {want!r}', *details)


def skip(what, why):
    global _count
    _count += 1
    print(f'ok {_count} - {what} # SKIP {why}', flush=True)


def done():
    print(f'1..{_count}', flush=True)
    sys.exit(1 if _failed else 0)


class Result:
    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err

    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return f'exit {self.rc}\nstdout: {self.out}\nstderr: {self.err}'


def ctl(*args, stdin=None, env=None, timeout=120):
    """Run kvmmctl with the user backend unless the arguments say another.

    stdin: bytes, or an open file."""
    argv = [KVMMCTL, *map(str, args)]
    if not any(a.startswith('--backend') for a in argv):
        argv[1:1] = ['--backend', 'user']
    full = dict(os.environ, LC_ALL='C', **(env or {}))
    given = {'stdin': stdin} if hasattr(stdin, 'fileno') else {'input': stdin}
    p = subprocess.run(argv, **given, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, env=full, timeout=timeout)
    return Result(p.returncode, p.stdout.decode(errors='replace'),
                  p.stderr.decode(errors='replace'))


def replay(trace, *args, **kwargs):
    return ctl('replay', trace, '--json', *args, **kwargs)


def write_trace(path, requests):
    """Requests are lists of ids, or (timestamp, ids)."""
    with open(path, 'w') as f:
        for i, r in enumerate(requests):
            t, ids = r if isinstance(r, tuple) else (i, r)
            f.write(json.dumps({'timestamp': t, 'input_length': len(ids),
                                'output_length': 1, 'hash_ids': ids}) + '\n')


def folder():
    """A temporary folder on a file system with O_DIRECT where there is one."""
    return tempfile.TemporaryDirectory(
        prefix='kvmmctl-test.', dir=os.environ.get('TMPDIR', '/var/tmp'))
