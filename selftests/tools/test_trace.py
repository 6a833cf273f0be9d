#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reading traces: what is accepted, and the exact words for what is not."""

import os

from tap import ctl, done, equal, folder, ok, replay

GOOD = b'{"timestamp": 7, "hash_ids": [1, 2]}\n'
SMALL = ('--block-size', '4K', '--frames', '8')

# line 3 of the file -> message after FILE:3:
BAD = [
    ('a word', b'hello', 'not JSON: invalid token near \'hello\'', True),
    ('half an object', b'{"timestamp": 9, "hash_ids": [1', 'not JSON: ',
     False),
    ('two objects', b'{"timestamp": 9, "hash_ids": []} {}', 'not JSON: ',
     False),
    ('bytes that are no UTF-8',
     b'{"timestamp": 9, "hash_ids": [], "x": "\xff"}', 'not JSON: ', False),
    ('a list', b'[1, 2]', 'not a JSON object', True),
    ('a number', b'17', 'not a JSON object', True),
    ('null', b'null', 'not a JSON object', True),
    ('no hash_ids', b'{"timestamp": 9}', '"hash_ids" is missing', True),
    ('hash_ids is a number', b'{"timestamp": 9, "hash_ids": 3}',
     '"hash_ids" is not a list', True),
    ('hash_ids is null', b'{"timestamp": 9, "hash_ids": null}',
     '"hash_ids" is not a list', True),
    ('a negative id', b'{"timestamp": 9, "hash_ids": [4, -1]}',
     '"hash_ids"[1] is negative', True),
    ('a fraction', b'{"timestamp": 9, "hash_ids": [1.5]}',
     '"hash_ids"[0] is not a whole number', True),
    ('a string', b'{"timestamp": 9, "hash_ids": [1, 2, "3"]}',
     '"hash_ids"[2] is not a whole number', True),
    ('true', b'{"timestamp": 9, "hash_ids": [true]}',
     '"hash_ids"[0] is not a whole number', True),
    ('an id of 2^63', b'{"timestamp": 9, "hash_ids": [9223372036854775808]}',
     'a number is out of range: too big integer', True),
    ('no timestamp', b'{"hash_ids": [1]}', '"timestamp" is missing', True),
    ('a negative timestamp', b'{"timestamp": -1, "hash_ids": [1]}',
     '"timestamp" is negative', True),
    ('a timestamp in words', b'{"timestamp": "now", "hash_ids": [1]}',
     '"timestamp" is not a whole number', True),
    ('time that goes back', b'{"timestamp": 6, "hash_ids": [1]}',
     '"timestamp" goes back: 6 after 7', True),
    ('a negative input_length',
     b'{"timestamp": 9, "input_length": -5, "hash_ids": [1]}',
     '"input_length" is negative', True),
    ('a huge output_length',
     b'{"timestamp": 9, "output_length": 4294967296, "hash_ids": [1]}',
     '"output_length" is larger than 4294967295', True),
    ('a member twice',
     b'{"timestamp": 9, "hash_ids": [1], "hash_ids": [2]}',
     'a member occurs twice: duplicate object key', False),
    ('a NUL byte', b'{"timestamp": 9, "hash_ids": [1]}\0',
     'there is a NUL byte in the line', True),
]


def bad_lines(path):
    for what, line, message, exact in BAD:
        with open(path, 'wb') as f:
            f.write(GOOD + GOOD + line + b'\n' + GOOD)
        r = replay(path, *SMALL)
        want = f'{path}:3: {message}'
        got = r.err.rstrip('\n')
        if exact and message.startswith(('not JSON', 'a number')):
            exact = False       # jansson's own words may say more
        ok(r.rc == 1 and not r.out and
           (got == want if exact else got.startswith(want)) and
           '\n' not in got, f'{what}: FILE:3: {message}', want, r)
        if what == 'a word':
            r = ctl('replay', '-', *SMALL, stdin=open(path, 'rb').read())
            ok(r.rc == 1 and r.err.startswith('stdin:3: not JSON: '),
               'the same on standard input: stdin:3:', r)
            r = replay(path, '--limit', 2, *SMALL)
            ok(r.rc == 0 and r.json()['requests'] == 2,
               'a bad line behind --limit is not read', r)


def odd_but_good(path):
    def run(data, want, what):
        with open(path, 'wb') as f:
            f.write(data)
        r = replay(path, *SMALL)
        got = r.rc == 0 and (r.json()['requests'], r.json()['blocks'],
                             r.json()['hits'])
        equal(got, want, what, r)

    run(GOOD + b'\n \t\r\n' + GOOD, (2, 4, 2), 'blank lines are passed over')
    run(GOOD + GOOD.rstrip(), (2, 4, 2), 'the last line needs no newline')
    run(GOOD.replace(b'\n', b'\r\n') * 2, (2, 4, 2), 'lines may end in CR LF')
    run(b'{"timestamp": 0, "hash_ids": []}\n' + GOOD, (2, 2, 0),
        'an empty hash_ids is a request without blocks')
    run(b'{"timestamp": 0, "hash_ids": []}\n' * 2, (2, 0, 0),
        'a trace of empty requests')
    run(b'{"timestamp":0,"hash_ids":[9223372036854775807,0]}\n' * 2,
        (2, 4, 2), 'ids from 0 to 2^63 - 1')
    run(b'{"timestamp":0,"hash_ids":[1],"more":{"x":[1.5,null]}}\n' * 2,
        (2, 2, 1), 'other members are passed over')
    run(b'{"timestamp":0,"hash_ids":[' + b','.join([b'1'] * 3000) + b']}\n',
        (1, 3000, 0), 'a request longer than --frames')


def whole_files(path):
    open(path, 'wb').close()
    r = replay(path)
    equal((r.rc, r.err), (1, f'kvmmctl replay: {path}: there is no request in '
                             'it\n'), 'an empty file')
    r = replay(path + '.missing')
    equal((r.rc, r.err), (1, f'kvmmctl replay: can\'t open {path}.missing: No '
                             'such file or directory\n'), 'no such file')
    r = replay(os.path.dirname(path))
    equal((r.rc, r.err), (1, f'{os.path.dirname(path)}:1: can\'t read: Is a '
                             'directory\n'), 'a directory')
    with open(path, 'wb') as f:
        f.write(GOOD)
        f.seek(65 << 20, 1)     # a hole: NUL bytes up to the limit
        f.write(b'x\n')
    r = replay(path)
    equal((r.rc, r.err), (1, f'{path}:2: the line is longer than 64 MiB\n'),
          'a line beyond all bounds')


with folder() as d:
    file = os.path.join(d, 'trace.jsonl')
    bad_lines(file)
    odd_but_good(file)
    whole_files(file)
done()
