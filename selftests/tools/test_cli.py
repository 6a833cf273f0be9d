#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Command lines: help, man page and completion agree; errors are sentences."""

import os
import re
import subprocess
import time

from tap import KVMMCTL, ctl, done, equal, folder, ok, skip, write_trace

MAN = 'tools/kvmmctl/man/kvmmctl.1'
COMPLETION = 'tools/kvmmctl/completion/kvmmctl'
OPTION = re.compile(r'^  --([a-z-]+)(?: (\S+))?(?:  .*)?$')


def help_options(text):
    """Two lists of a --help text: {option: argument}, own and everyone's."""
    own, everyone = {}, {}
    into = None
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
    """{section: {option: argument}} of the man page."""
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
    """What bash offers for the last word."""
    script = (f'. {COMPLETION}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              '_kvmmctl; printf "%s\\n" "${COMPREPLY[@]}"')
    p = subprocess.run(['bash', '-c', script, 'bash', 'kvmmctl', *words],
                       stdout=subprocess.PIPE, check=True)
    return p.stdout.decode().split()


def agreement():
    r = ctl('--help')
    commands = re.findall(r'^  ((?:pool )?[a-z]+)(?: \[?[A-Z]+\]?)?  ',
                          r.out.split('Options of')[0], re.M)
    ok(r.rc == 0 and len(commands) == 9, 'kvmmctl --help lists 9 commands',
       commands, r)
    man = man_options()
    _, everyone = help_options(r.out)
    equal(everyone, man['Options of every command'],
          'options of every command: help and man page agree')
    equal(sorted(man), sorted(commands + ['Options of every command']),
          'the man page has a section for each command, and no other')
    for c in commands:
        r = ctl(*c.split(), '--help')
        own, all_ = help_options(r.out)
        ok(r.rc == 0 and not r.err, f'{c} --help', r)
        equal(own, man[c], f'{c}: help and man page agree')
        equal(all_, everyone, f'{c}: shows the options of every command')
        want = sorted('--' + o for o in {**own, **everyone})
        equal(sorted(complete(*c.split(), '--')), want,
              f'{c}: help and completion agree')
        pos = re.search(r'usage: kvmmctl ' + c + r' (\[?[A-Z]+\]?)? ?\[OPT',
                        r.out)
        ok(pos, f'{c}: usage line', r)
        for o, arg in own.items():
            if arg:
                r = ctl(*c.split(), '--' + o)
                equal((r.rc, r.err), (1, f'kvmmctl {c}: --{o} needs a value; '
                                         f'see kvmmctl {c} --help\n'),
                      f'{c} --{o} without its value')
    equal(complete(''), ['pool', 'stat', 'replay', 'demo'],
          'completion of commands')
    equal(complete('--backend', 'user', 'po'), ['pool'],
          'completion of a command behind an option')
    equal(complete('pool', ''), ['create', 'list', 'show', 'populate', 'events',
                                   'destroy'],
          'completion of pool')
    equal(complete('replay', '--backend', ''), ['auto', 'kernel', 'user'],
          'completion of --backend')
    equal(complete('replay', '--policy', ''), ['lru'],
          'completion of --policy')
    equal(complete('pool', 'create', '--populate', ''),
          ['wait', 'async', 'none'], 'completion of --populate')
    r = ctl('--version')
    ok(r.rc == 0 and re.fullmatch(r'kvmmctl \d+\.\d+\.\d+, library '
                                  r'\d+\.\d+\.\d+\n', r.out), '--version', r)
    try:
        p = subprocess.run(['mandoc', '-T', 'lint', '-W', 'warning', MAN],
                           stdout=subprocess.PIPE)
        equal((p.returncode, p.stdout), (0, b''), 'mandoc has no complaint')
    except FileNotFoundError:
        skip('mandoc has no complaint', 'mandoc is not installed')


def help_of():
    """One help, whichever way it is asked for."""
    everything = ctl('--help').out
    pool = ctl('pool', '--help')
    listed = re.findall(r'^  (pool [a-z]+|[a-z]+)\b.*  ', pool.out, re.M)
    ok(pool.rc == 0 and not pool.err and
       pool.out.startswith('usage: kvmmctl pool COMMAND [OPTION...]\n') and
       len(listed) == 6 and all(c.startswith('pool ') for c in listed),
       'pool --help lists the commands of pool, and no other', listed, pool)
    for want, ways in (
            (everything, (['help'], ['-h'], ['help', '--help'])),
            (pool.out, (['--help', 'pool'], ['help', 'pool'], ['-h', 'pool'],
                        ['pool', '-h'], ['pool', 'help'])),
            (ctl('stat', '--help').out, (['--help', 'stat'], ['help', 'stat'],
                                         ['help', '--json', 'stat'])),
            (ctl('pool', 'create', '--help').out,
             (['--help', 'pool', 'create'], ['help', 'pool', 'create']))):
        for way in ways:
            r = ctl(*way)
            equal((r.rc, r.err, r.out), (0, '', want), ' '.join(way))
    for way in (['--help', 'fly'], ['help', 'fly'], ['fly', '--help']):
        r = ctl(*way)
        equal((r.rc, r.out, r.err), (1, '', "kvmmctl: unknown command 'fly'; "
                                            'see kvmmctl --help\n'),
              ' '.join(way))
    equal(ctl('--version', 'pool').out, ctl('--version').out,
          '--version takes no notice of a command')
    with open('/dev/full', 'w') as full:
        p = subprocess.run([KVMMCTL, 'help', 'pool'], stdout=full,
                           stderr=subprocess.PIPE)
    ok(p.returncode == 1 and b"can't write the output" in p.stderr,
       'a help that can\'t be written is an error', p)
    equal(complete('help', 'po'), ['pool'], 'completion behind help')
    equal(complete('--help', 'pool', 'cr'), ['create'],
          'completion behind --help')


def errors(trace):
    def bad(args, message, what=None):
        r = ctl(*args)
        equal((r.rc, r.out, r.err), (1, '', f'kvmmctl{message}\n'),
              what or ' '.join(args).replace(trace, 'TRACE'))

    see = '; see kvmmctl --help'
    bad([], f': a command is missing{see}', 'no command')
    bad(['fly'], f": unknown command 'fly'{see}")
    bad(['pool'], ': pool needs one of: create, list, show, populate, events, '
        'destroy')
    bad(['pool', 'fly'], ": unknown command 'pool fly'; there are: pool "
        'create, list, show, populate, events, '
        'destroy')
    bad(['--fly', 'stat'], f': unknown option --fly{see}')
    bad(['pool', 'events', 'a', '--type', 'evicted,flown'],
        " pool events: --type: 'flown' is unknown; see kvmmctl pool events "
        '--help')
    for text in ('', '100', '100:', ':200', '100:200:300', '-1:5', '1:2x'):
        bad(['pool', 'create', 'a', '--block-size', '64K', '--frames', '8',
             '--clean', text], f" pool create: --clean: '{text}' is not "
            'LOW:HIGH, in permille, as in 100:200')
    for text in ('200:100', '100:1001'):
        bad(['pool', 'create', 'a', '--block-size', '64K', '--frames', '8',
             '--clean', text], ' pool create: --clean: LOW is at most HIGH, '
            'and HIGH at most 1000')
    for more, text in ((['--elastic', '9'], 'there are only 8 frames'),
                       (['--elastic', '4', '--chunk', '8'], 'frames and '
                        'elastic frames must be whole chunks of 8')):
        bad(['pool', 'create', 'a', '--block-size', '1M', '--frames', '8',
             *more], f' pool create: --elastic: {text}')
    bad(['pool', 'create', 'a', '--block-size', '1M', '--frames', '8',
         '--chunk', '3'], ' pool create: --chunk: 3 is not a power of two')
    for nodes in ('', '64', '1-', '3-1', '0,', 'a', '-1', ' 0', '0;1', '100'):
        bad(['pool', 'create', 'a', '--block-size', '2M', '--frames', '8',
             '--nodes', nodes],
            f" pool create: --nodes: '{nodes}' is not a list of nodes up to "
            '63, as in 0-1,3')
    bad(['pool', 'create', 'a', '--block-size', '2M', '--frames', '8',
         '--prefer-nodes'], ' pool create: --prefer-nodes needs --nodes')
    bad(['pool', 'create', 'a', '--block-size', '2M', '--frames', '8',
         '--populate', 'later'], " pool create: --populate: 'later' is "
        'unknown; there are: wait, async, none')
    bad(['pool', 'create', 'a', '--block-size', '2M', '--frames', '8',
         '--populate', 'none', '--threads', '2'], ' pool create: --threads: '
        'with --populate none there is nothing for them to do')
    bad(['pool', 'create', 'a', '--block-size', '2M', '--frames', '8',
         '--threads', '65'], ' pool create: --threads: 65 is too large, the '
        'most is 64')
    for two in (['--async', '--wait'], ['--wait', '--cancel'],
                ['--cancel', '--async']):
        bad(['pool', 'populate', 'a', *two], ' pool populate: only one of '
            '--async, --wait and --cancel can be given')
    bad(['pool', 'populate', 'a', '--wait', '--threads', '2'],
        ' pool populate: --threads is for a new populate')
    bad(['pool', 'events', 'a', '--type', ''],
        ' pool events: --type: no type is given')
    bad(['-x', 'stat'], f': unknown option -x{see}')
    bad(['--json=yes', 'stat'], f': --json=yes takes no value{see}')
    bad(['--backend', 'cloud', 'stat'], " stat: --backend: 'cloud' is unknown; "
        'there are: auto, kernel, user')
    see = '; see kvmmctl replay --help'
    bad(['replay'], f' replay: TRACE is missing{see}')
    bad(['replay', trace, 'b'], f" replay: too many arguments: 'b'{see}")
    bad(['replay', trace, '--fly'], f' replay: unknown option --fly{see}')
    bad(['replay', trace, '--policy', 'fifo'],
        " replay: --policy: 'fifo' is unknown; there is: lru")
    bad(['replay', trace, '--frames', '0'],
        ' replay: --frames: 0 is too small, the least is 1')
    bad(['replay', trace, '--frames', '-1'],
        " replay: --frames: '-1' is negative")
    bad(['replay', trace, '--frames', '1K'],
        " replay: --frames: '1K' is not a whole number")
    bad(['replay', trace, '--frames', '999999999'],
        ' replay: --frames: 999999999 is too large, the most is 268,435,456')
    bad(['replay', trace, '--limit', ''], " replay: --limit: '' is empty")
    bad(['replay', trace, '--swap', ''], ' replay: --swap: the name is empty')
    bad(['replay', trace, '--swap', '/nowhere', '--slots', '0'],
        ' replay: --swap needs --slots of at least 1')
    bad(['replay', trace, '--swap', '/dev/null', '--slots', '1'],
        ' replay: /dev/null is neither a regular file nor a block device')
    bad(['replay', trace, '--frames', '200000000', '--slots', '200000000'],
        ' replay: the pool would have 400,000,002 frames and slots, the most '
        'is 268,435,456')
    for text, why in [
            ('4000', '4000 is too small, the least is 4 KiB'),
            ('4KB', '4KB is too small, the least is 4 KiB'),
            ('64KB', '64KB is not a power of two'),
            ('512M', '512M is too large, the most is 256 MiB'),
            ('1.5M', "'1.5M' has a fraction: use a smaller unit"),
            ('-1', "'-1' is negative"), ('', "'' is empty"),
            ('M', "'M' does not start with a digit"),
            ('99999999999999999999', "'99999999999999999999' is too large"),
            ('99999999999T', "'99999999999T' is too large"),
            ('64Q', "'64Q' has an unknown unit: use K, M, G, T (powers of "
             '1024), KiB, MiB, GiB, TiB (the same) or KB, MB, GB, TB (powers '
             'of 1000)'),
    ]:
        bad(['replay', trace, '--block-size', text],
            f' replay: --block-size: {why}')
    for text in ('4096', '4096B', '4K', '4k', '4KiB', '4 KiB', '64KIB'):
        r = ctl('replay', trace, '--json', '--block-size', text)
        want = 65536 if text.startswith('64') else 4096
        equal(r.rc == 0 and r.json()['block_size'], want,
              f'--block-size {text}', r)


def user_pools():
    ends = ('pools of the user backend live in the process that makes them '
            'and end with it')
    for words, tail in ((['pool', 'create', 'a', '--block-size', '64K',
                          '--frames', '8'], 'nothing would be left to use'),
                        (['pool', 'show', 'a'], 'there is none to show'),
                        (['pool', 'events', 'a'], 'there is none to watch'),
                        (['pool', 'destroy', 'a'], 'there is none to destroy'),
                        (['stat', 'a'], 'there is none to look at')):
        c = ' '.join(words[:1 if words[0] == 'stat' else 2])
        r = ctl(*words)
        equal((r.rc, r.out, r.err),
              (1, '', f'kvmmctl {c}: {ends}: {tail}; use --backend kernel\n'),
              f'{c}: the user backend has no pools of that kind')
        r = ctl(*words, '--backend', 'kernel', '--device', '/nowhere')
        equal((r.rc, r.out, r.err),
              (1, '', f'kvmmctl {c}: no kernel backend: /nowhere: No such file '
                      'or directory\n'), f'{c}: no kernel backend')
        r = ctl(*words, '--backend', 'auto', '--device', '/nowhere')
        equal((r.rc, r.out, r.err),
              (1, '', f'kvmmctl {c}: no kernel backend: /nowhere: No such file '
                      f'or directory; and {ends}: {tail}\n'),
              f'{c}: auto says why')
    r = ctl('pool', 'list')
    ok(r.rc == 0 and r.out.startswith('backend         user\n') and
       'no pools' in r.out and ends in r.err, 'pool list', r)
    r = ctl('pool', 'list', '--json')
    equal((r.rc, r.json()), (0, {'backend': 'user', 'pools': []}),
          'pool list --json')
    r = ctl('stat')
    ok(r.rc == 0 and r.out.startswith('backend         user, I/O by '), 'stat',
       r)
    r = ctl('stat', '--json')
    ok(r.rc == 0 and r.json()['backend'] == 'user' and r.json()['pools'] == [],
       'stat --json', r)
    r = ctl('replay', '/nowhere', '--backend', 'kernel', '--device', '/nowhere')
    equal((r.rc, r.err), (1, 'kvmmctl replay: no kernel backend: /nowhere: No '
                             'such file or directory\n'),
          'replay: no kernel backend')
    alien = '/dev/null: not kvmm, or another version of its interface'
    r = ctl('stat', '--backend', 'kernel', '--device', '/dev/null')
    equal((r.rc, r.err), (1, f'kvmmctl stat: no kernel backend: {alien}\n'),
          "a device that isn't kvmm's")
    r = ctl('stat', 'a', '--backend', 'auto', '--device', '/dev/null')
    ok(r.rc == 1 and f'no kernel backend: {alien}; and {ends}' in r.err,
       "auto: a device that isn't kvmm's", r)
    r = ctl('stat', '--backend', 'auto', '--device', '/dev/null')
    ok(r.rc == 0 and f'{alien}: pools are kept in this process' in r.err,
       "auto: a device that isn't kvmm's is told", r)
    if not os.path.exists('/dev/kvmm'):
        r = ctl('stat', '--backend', 'kernel')
        equal((r.rc, r.err),
              (1, 'kvmmctl stat: no kernel backend: /dev/kvmm: No such file '
                  'or directory (is kvmm.ko loaded?)\n'), 'no module')


def pool_arguments():
    see = 'kvmmctl pool create: '
    for args, why in (
            (['a'], '--block-size is missing'),
            (['a', '--block-size', '4K'], '--frames is missing'),
            (['.a', '--block-size', '4K', '--frames', '1'],
             "'.a' can't be a pool's name: letters, digits, '.', '_' and '-', "
             "not starting with '.' or '-'"),
            (['a/b', '--block-size', '4K', '--frames', '1'],
             "'a/b' can't be a pool's name: letters, digits, '.', '_' and "
             "'-', not starting with '.' or '-'"),
            (['x' * 64, '--block-size', '4K', '--frames', '1'],
             "a pool's name has 1 to 63 characters"),
            (['a', '--block-size', '4K', '--frames', '1', '--mode', '888'],
             "--mode: '888' is not an octal number up to 0777"),
            (['a', '--block-size', '4K', '--frames', '1', '--mode', '0'],
             '--mode: 0 would let nobody open the pool'),
            (['a', '--block-size', '4K', '--frames', '1', '--swap', 'x'],
             '--swap needs --slots'),
            (['a', '--block-size', '4K', '--frames', '1', '--quarantine',
              '600001'],
             '--quarantine: 600001 is too large, the most is 600,000'),
    ):
        r = ctl('pool', 'create', *args)
        equal((r.rc, r.err), (1, f'{see}{why}\n'), f'pool create: {why}')
    r = ctl('stat', '--watch', '1')
    equal((r.rc, r.err), (1, 'kvmmctl stat: --watch needs the NAME of a '
                             'pool\n'), 'stat --watch without a pool')
    r = ctl('stat', 'a', '--count', '1')
    equal((r.rc, r.err), (1, 'kvmmctl stat: --count needs --watch\n'),
          'stat --count without --watch')


def lost_output(trace):
    with open('/dev/full', 'w') as full:
        p = subprocess.run([KVMMCTL, '--backend', 'user', 'replay', trace],
                           stdout=full, stderr=subprocess.PIPE)
    ok(p.returncode == 1 and b"can't write the output" in p.stderr,
       'output that can\'t be written is an error', p)


def files_of(pid):
    """What its descriptors are, by number."""
    files = {}
    for fd in os.listdir(f'/proc/{pid}/fd'):
        try:
            files[int(fd)] = os.readlink(f'/proc/{pid}/fd/{fd}')
        except OSError:
            pass
    return files


def closed_descriptors():
    """Messages must not go to the pool's memory, nor to its swap area."""
    p = subprocess.Popen([KVMMCTL, '--backend', 'user', 'demo'],
                         preexec_fn=lambda: os.closerange(0, 3))
    files = {}
    while p.poll() is None and not any('memfd:kvmm' in f
                                       for f in files.values()):
        files = files_of(p.pid)
        time.sleep(0.001)
    p.kill()
    p.wait()
    ok([files.get(fd) for fd in range(3)] == ['/dev/null'] * 3,
       'no file gets the number of a standard descriptor', files)
    p = subprocess.run([KVMMCTL, '--version'], stderr=subprocess.PIPE,
                       preexec_fn=lambda: os.close(1))
    ok(p.returncode == 1 and b"can't write the output" in p.stderr,
       'output to a closed descriptor is an error', p)


def demo():
    r = ctl('demo', '--memory', '4M', '--disk', '8M', '--block-size', '16K',
            '--json')
    j = r.json() if r.rc == 0 else {}
    ok(j and j['corrupt'] == 0 and j['hits_memory'] and j['hits_swap'] and
       j['purged'], 'demo: both tiers are used and overflow', r)
    r = ctl('demo', '--memory', '4M', '--disk', '8M', '--block-size', '16K',
            '--json')
    same = ('requests', 'blocks', 'hits_memory', 'hits_swap')
    equal([r.json()[k] for k in same], [j.get(k) for k in same],
          'demo: the same requests and hits each time')
    r = ctl('demo', '--memory', '2M', '--disk', '4M', '--block-size', '16K')
    ok(r.rc == 0 and 'backend user' in r.out and 'in memory' in r.out and
       'on disk' in r.out and 'computed again' in r.out and
       'none wrong' in r.out, 'demo: the table', r)
    r = ctl('demo', '--memory', '1M', '--disk', '1M')
    equal((r.rc, r.err), (1, 'kvmmctl demo: memory and disk must each '
                             'have room for 16 blocks\n'), 'demo: too small')


with folder() as d:
    file = os.path.join(d, 'trace.jsonl')
    write_trace(file, [[1, 2], [1, 2]])
    agreement()
    help_of()
    errors(file)
    user_pools()
    pool_arguments()
    lost_output(file)
    closed_descriptors()
    demo()
done()
