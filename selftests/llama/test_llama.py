#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kvmm-llama, on libllama or on the engine that pretends:
test_llama.py real|fake.  $KVMM_LLAMA is the program.  TAP on stdout."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'tools'))
from tap import done, equal, folder, ok, skip  # noqa: E402

PROGRAM = os.environ['KVMM_LLAMA']
FAKE = sys.argv[1:] == ['fake']
MAN = 'tools/llama/man/kvmm-llama.1'
COMPLETION = 'tools/llama/completion/kvmm-llama'
OPTION = re.compile(r'^  --([a-z-]+)(?: (\S+))?(?:  .*)?$')
BLOCK = 32
# small, for a machine that may be slow
SHAPE = ('--layers', 2, '--embd', 64, '--vocab', 500)
SIZES = ('--context', 512, '--block-tokens', BLOCK, '--slots', 3,
         '--threads', 1, '--backend', 'user')
TALK = ('--conversations', 12, '--turns', 3, '--prompts', 2,
        '--prompt-tokens', 150, '--user-tokens', 60, '--predict', 12)


class Result:
    def __init__(self, rc, out, err):
        self.rc, self.out, self.err = rc, out, err

    def json(self):
        return json.loads(self.out)

    def lines(self):
        return [json.loads(x) for x in self.out.splitlines()]

    def __str__(self):
        return f'exit {self.rc}\nstdout: {self.out}\nstderr: {self.err}'


def run(*args, stdin=None, **env):
    p = subprocess.run([PROGRAM, *map(str, args)], input=stdin,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env=dict(os.environ, LC_ALL='C', **env), timeout=600,
                       text=True)
    return Result(p.returncode, p.stdout, p.stderr)


class Server:
    """kvmm-llama serve, a request at a time."""

    def __init__(self, *args):
        self.p = subprocess.Popen([PROGRAM, 'serve', *map(str, args)],
                                  stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)

    def ask(self, request):
        self.p.stdin.write(json.dumps(request) + '\n')
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())

    def kill(self):
        self.p.kill()
        return self.p.wait()

    def end(self):
        self.p.stdin.close()
        self.p.stdout.close()
        return self.p.wait(timeout=60)


def said(answers):
    """What must not depend on where the state came from."""
    return [(a.get('id'), a.get('tokens'), a.get('digest')) for a in answers]


def total(answers, what):
    return sum(a[what + '_tokens'] for a in answers)


def models(tmp):
    def digest(path):
        with open(path, 'rb') as f:
            return hashlib.sha256(f.read()).hexdigest()

    a, b, c = (f'{tmp}/{x}.gguf' for x in 'abc')
    r = run('model', a, *SHAPE)
    ok(r.rc == 0 and r.out.startswith(a), 'model: makes a file', r)
    run('model', b, *SHAPE)
    run('model', c, *SHAPE, '--seed', 2)
    equal(digest(a), '1c778f040cda62a075317322a38ed11050f42add5a0dc4297a817e14864cf410',
          'model: the same file everywhere, to the last byte')
    ok(digest(a) == digest(b) != digest(c), 'model: the seed decides')
    equal(run('model', a, *SHAPE, '--json').json(),
          {'bytes': os.path.getsize(a)}, 'model: --json')
    r = run('model', '/nowhere/a.gguf')
    equal((r.rc, r.err), (1, "kvmm-llama model: can't write /nowhere/a.gguf: "
                             'No such file or directory\n'),
          'model: no such folder')
    r = run('model', a, *SHAPE, '--vocab', 100, '--text')
    equal((r.rc, r.err), (1, 'kvmm-llama model: --text needs --vocab of at '
                             'least 259\n'), 'model: --text')
    r = run('model', a, '--embd', 100)
    equal((r.rc, r.err), (1, 'kvmm-llama model: --embd: 100 is not a multiple '
                             'of 64\n'), 'model: --embd')
    ok(digest(a) == digest(b) and len(os.listdir(tmp)) == 3,
       'model: a failure leaves what was there', os.listdir(tmp))
    return a


def offline(tmp):
    """libllama can't be fetched: what was tried, and what to do instead."""
    tools, build = tmp + '/bin', tmp + '/build'
    os.mkdir(tools)
    code = {'apt-get': 'case $* in *indextargets*) . /etc/os-release; '
                       'echo http://mirror.invalid/debian '
                       '"${VERSION_CODENAME-} main";; *) '
                       'echo E: Could not resolve mirror.invalid; '
                       'exit 100;; esac',
            'uname': 'echo x86_64', 'sleep': 'echo "$@" >>%s/slept' % tmp,
            'dpkg-deb': 'exit 1'}
    for name, text in code.items():
        with open(f'{tools}/{name}', 'w') as f:
            f.write('#!/bin/sh\n' + text + '\n')
        os.chmod(f'{tools}/{name}', 0o755)
    p = subprocess.run(['tools/dist/fetch-llama.sh', '--build', build],
                       env=dict(os.environ, KVMM_CACHE='',
                                PATH=f'{tools}:{os.environ["PATH"]}'),
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = p.stdout.decode().splitlines()
    failed = ('fetch-llama: reading the package lists failed: '
              'Could not resolve mirror.invalid')
    want = ['fetch-llama: downloading libllama of Debian forky, 20 MB with '
            'what it needs, from http://mirror.invalid/debian',
            failed, 'fetch-llama: trying again in 3 s',
            failed, 'fetch-llama: trying again in 6 s', failed,
            "fetch-llama: libllama of Debian forky can't be had from "
            'http://mirror.invalid/debian: reading the package lists failed 3 '
            'times; give a llama.cpp of your own (LLAMA_ROOT=its folder); '
            'make demo works without any']
    equal((p.returncode, lines), (1, want), 'offline: what was tried is told')
    with open(tmp + '/slept') as f:
        equal(f.read(), '3\n6\n', 'offline: it was tried three times')
    equal(os.listdir(build), ['.llama.lock'], 'offline: nothing is left')
    shutil.rmtree(tools)
    shutil.rmtree(build)
    os.unlink(tmp + '/slept')


def help_options(text):
    own, everyone, into = {}, {}, None
    for line in text.splitlines():
        if line == 'Options:':
            into = own
        elif line == 'Options of every command:':
            into = everyone
        elif into is not None and OPTION.match(line):
            name, arg = OPTION.match(line).groups()
            into[name] = arg
    return own, everyone


def man_options():
    out, section = {}, None
    with open(MAN) as f:
        for line in f:
            words = line.split()
            if line.startswith('.Ss '):
                section = line[4:].strip()
                out[section] = {}
            elif line.startswith('.Sh '):
                section = None
            elif section and line.startswith('.It Fl -'):
                arg = ''.join(w for w in words[3:] if w not in ('Ar', 'Cm'))
                out[section][words[2][1:]] = arg or None
    return out


def complete(*words):
    script = (f'. {COMPLETION}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              '_kvmm_llama; printf "%s\\n" "${COMPREPLY[@]}"')
    p = subprocess.run(['bash', '-c', script, 'bash', 'kvmm-llama', *words],
                       stdout=subprocess.PIPE, check=True)
    return p.stdout.decode().split()


def command_lines(model):
    r = run('--help')
    commands = re.findall(r'^  ([a-z]+)(?: [A-Z]+)?  ',
                          r.out.split('Options of')[0], re.M)
    equal((r.rc, commands), (0, ['compare', 'serve', 'model']), '--help')
    man = man_options()
    _, everyone = help_options(r.out)
    equal(everyone, man['Options of every command'],
          'options of every command: help and man page agree')
    shared = {**man['Options of the engine'], **man['Options of the pool']}
    for c in commands:
        r = run(c, '--help')
        own, all_ = help_options(r.out)
        want = {**man[c], **({} if c == 'model' else shared)}
        ok(r.rc == 0 and not r.err and own == want and all_ == everyone,
           f'{c}: help and man page agree', own, want, r)
        for way in (['--help', c], ['help', c]):
            equal((run(*way).rc, run(*way).out), (0, r.out), ' '.join(way))
        equal(sorted(complete(c, '--')),
              sorted('--' + o for o in {**own, **everyone}),
              f'{c}: help and completion agree')
    equal(complete(''), commands, 'completion of commands')
    equal(complete('help', 'se'), ['serve'], 'completion behind help')
    try:
        p = subprocess.run(['mandoc', '-T', 'lint', '-W', 'warning', MAN],
                           stdout=subprocess.PIPE)
        equal((p.returncode, p.stdout), (0, b''), 'mandoc has no complaint')
    except FileNotFoundError:
        skip('mandoc has no complaint', 'mandoc is not installed')

    def bad(message, *args):
        r = run(*args)
        equal((r.rc, r.out, r.err), (1, '', f'kvmm-llama{message}\n'),
              ' '.join(map(str, args)).replace(model, 'MODEL') or 'no command')

    bad(': a command is missing; see kvmm-llama --help')
    bad(": unknown command 'fly'; see kvmm-llama --help", 'fly')
    bad(': unknown option --fly; see kvmm-llama --help', '--fly')
    bad(' serve: unknown option --fly; see kvmm-llama serve --help', 'serve',
        '--fly')
    bad(' serve: --slots needs a value; see kvmm-llama serve --help', 'serve',
        '--slots')
    bad(" serve: too many arguments: 'a'; see kvmm-llama serve --help",
        'serve', 'a')
    bad(' model: FILE is missing; see kvmm-llama model --help', 'model')
    bad(' serve: --model is missing', 'serve')
    bad(" serve: can't read /nowhere: No such file or directory", 'serve',
        '--model', '/nowhere')
    bad(' serve: --slots: 0 is too small, the least is 1', 'serve', '--model',
        model, '--slots', 0)
    bad(" serve: --memory: '1Q' has an unknown unit: use K, M, G, T (powers "
        'of 1024), KiB, MiB, GiB, TiB (the same) or KB, MB, GB, TB (powers of '
        '1000)', 'serve', '--model', model, *SIZES, '--memory', '1Q')
    bad(" serve: --backend: 'cloud' is unknown; there are: auto, kernel, user",
        'serve', '--model', model, '--backend', 'cloud')
    bad(' serve: --block-size: 5000 is not a power of two', 'serve', '--model',
        model, *SIZES, '--block-size', 5000)
    bad(" serve: can't open kvmm (/nowhere): No such file or directory",
        'serve', '--model', model, *SIZES[:-2], '--backend', 'kernel',
        '--device', '/nowhere')
    bad(" serve: can't open kvmm (/dev/null): not kvmm, or another version of "
        'its interface', 'serve', '--model', model, *SIZES[:-2], '--backend',
        'kernel', '--device', '/dev/null')
    bad(' compare: --no-kvmm leaves nothing to compare', 'compare', '--model',
        model, '--no-kvmm')
    bad(" compare: conversations of 150 tokens and 99 turns of 60 and 12 don't "
        'fit into a context of 512', 'compare', '--model', model, *SIZES,
        *TALK, '--turns', 99)
    r = run('serve', '--model', model, *SIZES, '--memory', '64K')
    ok(r.rc == 1 and 'too little memory' in r.err, 'too little memory', r)
    r = run('serve', '--model', model, *SIZES, '--swap', '/nowhere/swap')
    ok(r.rc == 1 and "can't use /nowhere/swap as a swap area" in r.err,
       'no such swap file', r)
    if not FAKE:
        r = run('serve', '--model', PROGRAM, *SIZES)
        ok(r.rc == 1 and "can't load" in r.err, 'not a model', r)
        bad(' serve: a context of 64 tokens is less than two blocks of 64',
            'serve', '--model', model, '--context', 64)


def compares(model, tmp):
    """Returns the requests of a run, to serve."""
    requests = f'{tmp}/requests'
    r = run('compare', '--model', model, *SIZES, *TALK, '--memory', '512K',
            '--disk', '16M', '--rounds', 3, '--record', requests, '--json',
            TMPDIR=tmp)
    if not ok(r.rc == 0 and r.json()['different'] == 0,
              'compare: every token and every logit is the same', r):
        done()
    j = r.json()
    ok(j['backend'] == 'user' and j['requests'] == 36 and
       j['answered_tokens'] == 36 * 12, 'compare: all requests', r)
    a, b, t = j['without'], j['with'], j['first_token_ms']
    for p in (a, b):
        equal(p['kept_tokens'] + p['memory_tokens'] + p['disk_tokens'] +
              p['computed_tokens'], p['prompt_tokens'],
              'compare: each token is counted once')
    ok(a['memory_tokens'] == a['disk_tokens'] == a['saved_tokens'] == 0,
       'compare: nothing comes from kvmm without it', a)
    ok(b['memory_tokens'] > 0 and b['disk_tokens'] > 0 and
       j['swap_out_bytes'] > 0 and j['swap_in_bytes'] > 0,
       'compare: from memory and from disk', b)
    ok(a['evicted'] > 0 and 2 * b['computed_tokens'] < a['computed_tokens'],
       'compare: less than half is computed', a, b)
    # system prompts of 150 tokens are four ranges that conversations share
    ok(b['saved_tokens'] + b['evicted'] < b['prompt_tokens'] and
       b['saved_tokens'] <= a['prompt_tokens'] // 2,
       'compare: what conversations share is stored once', b)
    ok(t['astray'] == 0 and t['computed'] > 0 and t['memory'] > 0 and
       t['disk'] > 0, 'compare: each time is of the state it says', t)
    equal(os.listdir(tmp), ['requests'] if tmp else [],
          'compare: no file is left')
    r = run('compare', '--model', model, *SIZES, *TALK, '--rounds', 1)
    ok(r.rc == 0 and 'bit for bit' in r.out and 'from disk' in r.out and
       '\r' not in r.err, 'compare: for people', r)
    with open(requests) as f:
        return [json.loads(x) for x in f]


def second_compiler():
    """The one file that the other suite does not build with clang."""
    with open(os.path.join(os.path.dirname(PROGRAM), '../../found.mk')) as f:
        found = dict(x.rstrip('\n').split(' := ') for x in f)
    cc = found['LLAMA_CC'].split()
    try:
        p = subprocess.run(
            ['clang', *cc[1:], *found.get('LLAMA_CPPFLAGS', '').split(),
             '-std=gnu11', '-D_GNU_SOURCE', '-Wall', '-Wextra', '-Werror',
             '-Wshadow', '-fsyntax-only', 'tools/llama/engine_llama.c'],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        equal((p.returncode, p.stdout), (0, ''), 'clang has no complaint')
    except FileNotFoundError:
        skip('clang has no complaint', 'clang is not installed')


def sabotage(model):
    """The comparison would show if something were wrong."""
    args = ('compare', '--model', model, *SIZES, *TALK, '--rounds', 1,
            '--json')
    r = run(*args, FAKE_FLIP='20')
    ok(r.rc == 2 and r.json()['different'] > 0,
       'compare: one wrong bit in what is loaded is exit status 2', r)
    r = run(*args, FAKE_REFUSE='20')
    ok(r.rc == 0 and r.json()['with']['refused'] == 1 and
       r.json()['different'] == 0,
       'compare: what the engine refuses is computed', r)
    r = run(*args, FAKE_FAIL='50')
    ok(r.rc == 1 and 'was told to fail' in r.err, 'compare: the engine fails',
       r)


def lines(requests):
    return ''.join(json.dumps(x) + '\n' for x in requests)


def serves(model, requests):
    """Returns the answers as they are without kvmm."""
    base = ('serve', '--model', model, *SIZES)
    r = run(*base, '--no-kvmm', stdin=lines(requests))
    plain = r.lines()
    equal((r.rc, [x['id'] for x in plain]), (0, list(range(len(requests)))),
          'serve: an answer for each request', r)
    ok(total(plain, 'memory') + total(plain, 'disk') == 0 and
       all(len(x['tokens']) == 12 for x in plain), 'serve: without kvmm', r)
    for what, args in (
            ('the pool has plenty', ()),
            ('little memory, a disk', ('--memory', '256K', '--disk', '16M')),
            ('little memory, no disk', ('--memory', '256K', '--disk', '0')),
            ('small blocks', ('--block-size', '4K', '--memory', '512K')),
            ('a block for all', ('--block-size', '256K', '--memory', '2M')),
            ('one slot', ('--slots', '1'))):
        r = run(*base, *args, stdin=lines(requests))
        equal((r.rc, said(r.lines())), (0, said(plain)),
              f'serve: the same answers ({what})')
        ok(total(r.lines(), 'computed') < total(plain, 'computed'),
           f'serve: less is computed ({what})')
    return plain


def shares(model):
    """A prefix is found whoever stored it, and a longer one serves it."""
    words = [(7 * i) % 400 for i in range(300)]
    s = Server('--model', model, *SIZES, '--slots', 1)
    first = s.ask({'id': 'a', 'prompt': words + [1] * 100, 'predict': 4})
    other = s.ask({'id': 'b', 'prompt': words + [2] * 90, 'predict': 4})
    whole = 300 // BLOCK * BLOCK
    equal((first['kept_tokens'], first['memory_tokens']), (0, 0),
          'a first prompt is computed')
    equal(other['kept_tokens'] + other['memory_tokens'], whole,
          'another one that begins alike has that much for nothing', other)
    s.ask({'id': 'c', 'prompt': [3] * 200, 'predict': 4})
    short = s.ask({'id': 'd', 'prompt': words[:200], 'predict': 4})
    equal(short['memory_tokens'], 199 // BLOCK * BLOCK,
          'a long one serves its beginning', short)
    moved = s.ask({'id': 'e', 'prompt': [9] + words[:199], 'predict': 4})
    equal(moved['memory_tokens'], 0, 'the same tokens elsewhere are a miss')
    again = s.ask({'id': 'a', 'prompt': words + [1] * 100, 'predict': 4})
    ok(again['memory_tokens'] > whole and again['digest'] == first['digest'] and
       again['tokens'] == first['tokens'], 'a prompt that comes back', again)
    equal(s.end(), 0, 'the end of the requests is the end')


def refuses(model):
    s = Server('--model', model, *SIZES)
    for what, request, why in (
            ('no object', [1], 'a request is a JSON object'),
            ('no prompt', {'id': 1}, '"prompt" is neither a list of tokens '
                                     'nor a text'),
            ('an empty prompt', {'id': 1, 'prompt': []},
             'a request needs a prompt and at least one token to predict'),
            ('no number', {'id': 1, 'prompt': ['a']},
             'a token is not a whole number'),
            ('a token that there is not', {'id': 1, 'prompt': [70000]},
             'token 70000 is not below'),
            ('too long', {'id': 1, 'prompt': [1] * 513},
             'the prompt is longer than the context'),
            ('no room for an answer', {'id': 1, 'prompt': [1] * 500,
                                       'predict': 100},
             "a prompt of 500 tokens and 100 more don't fit into a context of "
             '512'),
            ('nothing wanted', {'id': 1, 'prompt': [1], 'predict': 0},
             '"predict" is not a number'),
            ('text for a model without words', {'id': 1, 'prompt': 'Hello'},
             'this model has no vocabulary: give tokens, not text')):
        a = s.ask(request)
        ok(a.get('error', '').startswith(why) and 'tokens' not in a,
           f'a request refused: {what}', a)
    s.p.stdin.write('{"id":\n\n')
    a = s.ask({'id': 2, 'prompt': [1, 2, 3]})
    ok('error' in a, 'a request refused: not JSON', a)
    a = json.loads(s.p.stdout.readline())
    ok(a['id'] == 2 and len(a['tokens']) == 16, 'and it goes on', a)
    s.p.send_signal(signal.SIGTERM)
    equal(s.p.wait(timeout=60), 0, 'SIGTERM ends it')


def closed(model):
    """Without a stdout: the answers must not go to the pool's memory."""
    p = subprocess.Popen([PROGRAM, 'serve', '--model', model,
                          *map(str, SIZES)],
                         stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         preexec_fn=lambda: os.close(1))
    files = {}
    while p.poll() is None and not any('memfd:kvmm' in f
                                       for f in files.values()):
        try:
            files = {int(fd): os.readlink(f'/proc/{p.pid}/fd/{fd}')
                     for fd in os.listdir(f'/proc/{p.pid}/fd')}
        except OSError:
            pass
        time.sleep(0.001)
    p.kill()
    p.communicate()
    equal(files.get(1), '/dev/null', 'no file takes the place of stdout')


def text(model):
    """A model with a vocabulary: prompts and answers may be text."""
    run('model', model, *SHAPE, '--text')
    s = Server('--model', model, *SIZES)
    words = 'The same words, said again and again. ' * 8
    first = s.ask({'id': 1, 'prompt': words})
    ok('error' not in first and isinstance(first.get('text'), str) and
       first['prompt_tokens'] > len(words) and first['kept_tokens'] == 0,
       'a prompt that is text', first)
    other = s.ask({'id': 2, 'prompt': words + 'And more.'})
    whole = first['prompt_tokens'] // BLOCK * BLOCK
    equal(other.get('kept_tokens'), whole, 'more of the same text', other)
    ok('longer than' in s.ask({'prompt': words * 9}).get('error', '') or
       'more than' in s.ask({'prompt': words * 9})['error'],
       'a text that is too long')
    s.end()


def damage(model, requests, plain, tmp):
    """Whatever happens to the area: misses, and the same answers."""
    def scribble(f, size):
        for at in range(0, size, 8192):
            f.seek(at + 100)
            f.write(b'\xa5' * 64)

    area = f'{tmp}/area'
    args = ('--model', model, *SIZES, '--swap', area, '--memory', '256K',
            '--disk', '16M', '--slots', 1)
    half = len(requests) * 2 // 3

    def serve(what):
        s = Server(*args)
        answers = [s.ask(r) for r in requests[:half]]
        if what:
            with open(area, 'r+b') as f:
                what(f, os.path.getsize(area))
        answers += [s.ask(r) for r in requests[half:]]
        ok(s.end() == 0, 'served to the end')
        return answers

    good = serve(None)
    equal(said(good), said(plain), 'an area that is sound: the same answers')
    if not ok(total(good[half:], 'disk') > 0, 'and it was read'):
        return
    for name, what in (('scribbled over', scribble),
                       ('cut to nothing', lambda f, size: f.truncate(0)),
                       ('zeroed', lambda f, size: f.write(bytes(size)))):
        bad = serve(what)
        equal(said(bad), said(plain), f'an area {name}: the same answers')
        ok(total(bad[half:], 'computed') > total(good[half:], 'computed'),
           f'an area {name}: it was missed',
           total(bad[half:], 'computed'), total(good[half:], 'computed'))


def killed(model, requests, plain):
    args = ('--model', model, *SIZES)
    s = Server(*args)
    half = len(requests) // 2
    answers = [s.ask(r) for r in requests[:half]]
    s.p.stdin.write(json.dumps(requests[half]) + '\n')
    s.p.stdin.flush()
    equal(s.kill(), -9, 'killed while it serves')
    s = Server(*args)
    answers += [s.ask(r) for r in requests[half:]]
    s.end()
    equal(said(answers), said(plain), 'started again: the same answers')


def main():
    with folder() as tmp:
        os.mkdir(f'{tmp}/models')
        os.mkdir(f'{tmp}/run')
        model = models(f'{tmp}/models')
        command_lines(model)
        requests = compares(model, f'{tmp}/run')
        if FAKE:
            offline(tmp)
            sabotage(model)
        else:
            second_compiler()
            text(f'{tmp}/models/text.gguf')
        plain = serves(model, requests)
        shares(model)
        refuses(model)
        closed(model)
        damage(model, requests, plain, tmp)
        killed(model, requests, plain)
    done()


main()
