#!/usr/bin/env python3
"""Large files of Git LFS in sessions, beside the real git and git-lfs, which pull what was committed and push more."""
import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import time

from scene import POINTER, Scene, bytes_of, oid_of, pointer_to
from expectations import eventually, expect, expect_equal, fail, run_cases

MIB = 1 << 20


def PointersAreShownAsTheirFilesAndCommittedAsPointers(scene):
    old, new = bytes_of(1, 3 * MIB + 17), bytes_of(2, 2 * MIB + 1)
    scene.push({'a.bin': old, 'deep/er/b.bin': b'small\n', 'notes.txt': b'no object\n'})
    expect_equal('what git-lfs committed', scene.committed('a.bin'), pointer_to(old))

    expect_equal('the file', scene.run('cat a.bin'), old)
    expect_equal('its size', scene.run('stat -c %s a.bin deep/er/b.bin').split(), [b'%d' % len(old), b'6'])
    expect_equal('a part', scene.run('tail -c +2000001 a.bin | head -c 5'), old[2000000:2000005])
    expect_equal('what is unchanged', scene.run('mv deep/er/b.bin deep/moved.bin; chmod +x a.bin; cat deep/moved.bin'),
                 b'small\n')
    expect_equal('keeps its pointer', scene.committed('deep/moved.bin'), pointer_to(b'small\n'))
    expect_equal('whatever its mode', scene.committed('a.bin'), pointer_to(old))

    scene.write('new', new)
    scene.run(f'cat {scene.path("new")} > c.bin; : > empty.bin; cp c.bin copy.bin; cp a.bin plain; '
              'printf changed | dd of=a.bin bs=1 seek=1000000 conv=notrunc status=none')
    changed = old[:1000000] + b'changed' + old[1000007:]
    for path, content in (('c.bin', new), ('copy.bin', new), ('a.bin', changed)):
        expect_equal(path, scene.committed(path), pointer_to(content))
    expect_equal('an empty file', scene.committed('empty.bin'), b'')
    expect_equal('what is not for Git LFS', scene.committed('plain'), old)
    scene.run('mv c.bin c.raw; printf x >> c.raw')
    expect_equal('what is for Git LFS no more', scene.committed('c.raw'), new + b'x')

    clone = scene.clone('second')
    expect_equal('what git-lfs pulls', [scene.read(f'second/{name}') for name in ('a.bin', 'copy.bin', 'empty.bin')],
                 [changed, new, b''])
    scene.git('-C', clone, 'lfs', 'fsck')
    expect_equal('the status', scene.git('-C', clone, 'status', '--porcelain'), b'')
    scene.write('second/d.bin', bytes_of(3, MIB))
    scene.git('-C', clone, 'add', '--all')
    scene.git('-C', clone, 'commit', '--quiet', '--message', 'by git again')
    scene.git('-C', clone, 'push', '--quiet')
    expect_equal('what it pushed', scene.run('cat d.bin'), bytes_of(3, MIB))
    expect(b'a session' in scene.git('-C', clone, 'log', '--format=%s'), 'there is no commit of a session')

    session = scene.mount()
    scene.write('mount/a.bin', b'other bytes')
    patch = scene.escrow('diff', session, '--patch')
    expect(f'+oid sha256:{oid_of(b"other bytes")}'.encode()
           in patch and b'-size 3145745' in patch, f'the diff: {patch}')
    scene.escrow('rollback', session)


def WithLfsOffPointersAreShown(scene):
    content, more = bytes_of(1, MIB), bytes_of(2, MIB)
    scene.push({'a.bin': content})
    expect_equal('the pointer', scene.run('cat a.bin; stat -c %s a.bin', '--lfs', 'off'),
                 pointer_to(content) + b'132\n')
    scene.write('more', more)
    scene.run(f'cp {scene.path("more")} b.bin; cp a.bin c.bin', '--lfs', 'off')
    expect_equal('what is written', scene.committed('b.bin'), pointer_to(more))
    expect_equal('a pointer that is written', scene.committed('c.bin'), pointer_to(content))
    expect_equal('it is shown', scene.run('cat c.bin', '--lfs', 'on'), content)
    target = POINTER.format(oid_of(content), MIB).rstrip('\n')
    scene.run(f"ln -s '{target}\n' link.bin")
    expect_equal('a link whose target looks like one', scene.run('readlink link.bin; stat -c %s link.bin'),
                 (target + '\n\n132\n').encode())
    refused = scene.escrow('run', '--lfs', 'maybe', '--', 'true', status=125)
    expect(b'on' in refused and b'off' in refused, f'another value: {refused}')


def AttributesOfEveryLevelDecideAsGitDoes(scene):
    dice = random.Random(7)
    names = ['a.bin', 'b.dat', 'x y.bin', '#h.bin', 'c', 'd.BIN', 'é.bin', '.hidden.bin', '[x].bin', 'end ']
    directories = ['', 'one', 'one/two', 'one/two/three', 'other dir']
    patterns = ['*.bin', '*', 'one/**', '**/two/*', '/a.bin', 'two/', '"x y.bin"', '\\#h.bin', '#h.bin', '!*.bin',
                '*.b?n', '[[]x].bin', '*.dat', 'three/a.bin', '"end "', '"\\303\\251.bin"', 'one/two', '**', 'c']
    values = ['filter=lfs', '-filter', '!filter', 'filter', 'filter=other', 'big', '-big', '!big', 'text', 'large',
              'filter=lfs -text', 'filter=lfs -filter', '-filter filter=lfs', 'big -filter', 'filter=lfs bad@name', '']
    macros = ['[attr]big filter=lfs diff=lfs -text', '[attr]large big', '[attr]big -filter', '[attr] big filter=lfs']

    def lines(is_root):
        some = [f'{dice.choice(patterns)} {dice.choice(values)}' for _ in range(dice.randrange(6))]
        if dice.random() < (0.7 if is_root else 0.3):
            some.insert(dice.randrange(len(some) + 1), dice.choice(macros))
        if dice.random() < 0.2:
            some.append('* ' + 'x' * 3000 + ' filter=lfs')
        return '\n'.join(some) + dice.choice(['', '\n'])

    scene.filters = False
    scene.push({'begin': b''}, None)
    scene.git('-C', scene.repository, 'config', 'escrow.filters', 'raw')
    content, compared, found = bytes_of(1, 3000), 0, 0
    for turn in range(12):
        tree = scene.path(f'tree-{turn}')
        for directory in directories:
            os.makedirs(os.path.join(tree, directory), exist_ok=True)
            for name in names:
                with open(os.path.join(tree, directory, name), 'wb') as file:
                    file.write(content)
            if dice.random() < 0.6:
                with open(os.path.join(tree, directory, '.gitattributes'), 'w', encoding='utf-8') as file:
                    file.write(lines(not directory))
        os.makedirs(scene.repository + '/info', exist_ok=True)
        with open(scene.repository + '/info/attributes', 'w', encoding='utf-8') as file:
            file.write(lines(True) if dice.random() < 0.3 else '')
        scene.run(f'rm -rf ./* ; rm -f .gitattributes; cp -R {tree}/. .')
        check = scene.path(f'check-{turn}')
        shutil.copytree(tree, check)
        scene.git('init', '--quiet', check)
        shutil.copy(scene.repository + '/info/attributes', check + '/.git/info/attributes')
        for directory in directories:
            for name in names:
                path = os.path.join(directory, name)
                said = scene.git('-C', check, 'check-attr', '-z', 'filter', '--', path).split(b'\0')[2]
                blob = scene.committed(path)
                expect_equal(f'turn {turn}, {path!r} with filter {said}', blob == pointer_to(content), said == b'lfs')
                expect(blob in (content, pointer_to(content)), f'{path!r} is neither')
                compared, found = compared + 1, found + (said == b'lfs')
    expect(compared == 600 and 60 < found < 540, f'{found} of {compared} were for Git LFS')
    # Above the root of a mount, too.
    scene.write('repository.git/info/attributes', b'')
    scene.run('rm -rf ./* .gitattributes; mkdir -p top/sub; echo "*.big filter=lfs" > .gitattributes; echo > top/sub/x')
    scene.run('echo deep > y.big', '--path-prefix', 'top/sub')
    expect_equal('below a prefix', scene.committed('top/sub/y.big'), pointer_to(b'deep\n'))


def ASmallEditOfALargeFileStagesTheBlocksWritten(scene):
    size = 192 * MIB
    with open(scene.path('large'), 'wb') as file:
        for number in range(size // MIB):
            file.write(bytes_of(number, MIB))
    clone = scene.push({'small.bin': b'1'})
    shutil.copy(scene.path('large'), clone + '/large.bin')
    scene.git('-C', clone, 'add', 'large.bin')
    scene.git('-C', clone, 'commit', '--quiet', '--message', 'large')
    scene.git('-C', clone, 'push', '--quiet', 'origin', 'HEAD:main')
    session = scene.mount()
    with open(scene.path('mount/large.bin'), 'r+b') as file:
        for at in (5 * MIB + 3, 100 * MIB, size - 4):
            file.seek(at)
            file.write(b'edit')
        file.flush()
        os.fsync(file.fileno())
    staged = scene.status(session)['staged']['bytes']
    allocated = sum(os.lstat(os.path.join(root, name)).st_blocks * 512
                    for root, _, names in os.walk(f'{scene.repository}/escrow/sessions/{session}')
                    for name in names if name.isdigit() or 'staging' in root)
    expect(allocated < 4 * MIB, f'{allocated} bytes of the disk are staged for 12 that were written ({staged})')
    with open(scene.path('mount/large.bin'), 'rb') as file, open(scene.path('large'), 'r+b') as model:
        for at in (5 * MIB + 3, 100 * MIB, size - 4):
            model.seek(at)
            model.write(b'edit')
        model.seek(0)
        while piece := model.read(MIB):
            expect(file.read(MIB) == piece, f'the mount differs before byte {model.tell()}')
    peak = os.path.join('/proc', str(pid_of_host(scene, session)), 'status')
    with open(peak, encoding='ascii') as file:
        high = next(int(line.split()[1]) for line in file if line.startswith('VmHWM'))
    expect(high < 128 * 1024, f'the host process has held {high} KiB')
    scene.escrow('commit', session, '-m', 'edited')
    with open(scene.path('large'), 'rb') as file:
        expect_equal('the pointer', scene.committed('large.bin'), pointer_to(file.read()))
    scene.git('-C', clone, 'pull', '--quiet', 'origin', 'main')
    scene.call('cmp', clone + '/large.bin', scene.path('large'))


def has_open(pid, directory):
    """Whether a process has a file below the directory open. What it closes while it is looked at is passed over."""
    for descriptor in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f'/proc/{pid}/fd/{descriptor}').startswith(directory):
                return True
    return False


def pid_of_host(scene, session):
    for name in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            with open(f'/proc/{name}/cmdline', 'rb') as file:
                words = file.read()
            if b'escrow' in words and has_open(name, f'{scene.repository}/escrow/sessions/{session}/'):
                return int(name)
    return fail(f'session {session} has no host')


def AMissingObjectIsAnErrorOfItsFileAlone(scene):
    there, gone = bytes_of(1, MIB), bytes_of(2, MIB + 5)
    scene.push({'there.bin': there, 'dir/gone.bin': gone})
    os.unlink(scene.object_path(gone))
    session = scene.mount()
    expect_equal('its size', os.stat(scene.path('mount/dir/gone.bin')).st_size, MIB + 5)
    expect_equal('another', scene.read('mount/there.bin'), there)
    said = scene.call('cat', scene.path('mount/dir/gone.bin'), status=1)
    expect(b'Input/output error' in said, f'reading it: {said}')
    sentence = scene.status(session)['last_error']
    expect('dir/gone.bin' in sentence and oid_of(gone) in sentence and 'git lfs fetch' in sentence,
           f'the status says {sentence!r}')
    expect('dir/gone.bin' in scene.escrow('status', session).decode(), 'status does not say it to people')
    # What is not touched is committed as it is; so is what takes its place.
    scene.write('mount/new.bin', b'new')
    scene.escrow('commit', session, '-m', 'beside it')
    expect_equal('its pointer', scene.committed('dir/gone.bin'), pointer_to(gone))
    said = scene.run('printf x | dd of=dir/gone.bin bs=1 seek=9 conv=notrunc', status=1)
    expect(b'Input/output error' in said, f'writing into it: {said}')
    scene.run('echo other > dir/gone.bin')
    expect_equal('what takes its place', scene.committed('dir/gone.bin'), pointer_to(b'other\n'))
    # One of another size is not taken for it.
    with open(scene.object_path(there), 'ab') as file:
        os.fchmod(file.fileno(), 0o644)
        file.write(b'x')
    said = scene.run('cat there.bin', status=1)
    expect(b'Input/output error' in said, f'reading a damaged one: {said}')
    scene.run('cat dir/gone.bin > there.bin')
    scene.write('there', there)
    scene.run(f'cat {scene.path("there")} > there.bin')
    expect_equal('the same bytes again', scene.run('cat there.bin'), there)


def GitInsideSeesNoChangeWhereThereIsNone(scene):
    content = bytes_of(1, 2 * MIB)
    scene.push({'a.bin': content, 'dir/b.bin': b'second\n', 'c.txt': b'text\n'})
    for scene.filters in (True, False):
        what = 'with the filter' if scene.filters else 'without the filter'
        expect_equal(f'the status {what}', scene.run('git status --porcelain; git diff --stat'), b'')
        # By size and time alone: nothing was read.
        script = 'git status --porcelain; git ls-files --debug a.bin | grep -c "size: 2097152"'
        expect_equal(f'the index {what}', scene.run(script), b'1\n')
    # What was committed in this very second is not read either.
    for _ in range(3):
        time.sleep(1 - time.time() % 1)
        scene.run('head -c 1048576 /dev/urandom > new.bin')
        expect_equal('the status of what is new', scene.run('git status --porcelain'), b'')
    scene.filters = True
    expect_equal('what was touched', scene.run('touch a.bin; git status --porcelain; git diff --quiet'), b'')
    expect_equal('what was changed', scene.run('echo more >> dir/b.bin; git status --porcelain'), b' M dir/b.bin\n')
    expect_equal('its pointer', scene.committed('dir/b.bin'), pointer_to(b'second\nmore\n'))
    # git commits, and checks out, inside.
    scene.run('echo again >> dir/b.bin; git add --all; git commit --quiet -m inside; git status --porcelain')
    expect_equal('a commit inside', scene.committed('dir/b.bin'), pointer_to(b'second\nmore\nagain\n'))
    scene.filters = False
    scene.run('rm a.bin; git checkout -- a.bin; cp a.bin taken.bin')
    expect_equal('a pointer that git wrote', scene.committed('a.bin'), pointer_to(content))
    expect_equal('and its copy', scene.run('cat taken.bin'), content)


def WhatASessionPublishedInVainIsGitLfsToPrune(scene):
    clone = scene.push({'a.bin': b'first'})
    before = scene.objects()
    scene.run('echo 1 > x.bin; exit 3', status=3)
    expect_equal('after a failure', scene.objects(), before)
    session = scene.mount()
    scene.write('mount/x.bin', b'2')
    scene.escrow('diff', session)
    scene.escrow('rollback', session)
    expect_equal('after a rollback', scene.objects(), before)
    scene.git('-C', scene.repository, 'config', 'gc.pruneExpire', 'now')

    def collect():
        scene.escrow('gc')
        scene.git('-C', scene.repository, 'lfs', 'prune')

    def waiting(script):
        scene.run(script, '--require-approval', status=123)
        listed = scene.escrow('sessions').decode().splitlines()
        return next(line.split()[0] for line in listed if 'awaiting' in line)

    rejected = waiting('echo 3 > x.bin')
    expect_equal('while it waits', scene.objects(), sorted(before + [oid_of(b'3\n')]))
    scene.escrow('reject', rejected)
    expect_equal('after the rejection', scene.objects(), sorted(before + [oid_of(b'3\n')]))
    collect()
    expect_equal('when it was pruned', scene.objects(), before)
    # Somebody else came to need the same object.
    rejected = waiting('echo 4 > x.bin')
    scene.git('-C', clone, 'fetch', '--quiet')
    scene.write('first/other.bin', b'4\n')
    scene.git('-C', clone, 'add', 'other.bin')
    scene.git('-C', clone, 'commit', '--quiet', '--message', 'the same')
    scene.git('-C', clone, 'push', '--quiet', 'origin', 'HEAD:main')
    scene.escrow('reject', rejected)
    collect()
    expect_equal('what others need', scene.run('cat other.bin'), b'4\n')
    rejected = waiting('echo 5 > x.bin')
    scene.run('echo 5 > mine.bin')
    scene.escrow('reject', rejected)
    collect()
    expect_equal('what another session committed', scene.run('cat mine.bin'), b'5\n')
    approved = waiting('echo 6 > x.bin')
    scene.escrow('approve', approved)
    expect_equal('what was approved', scene.run('cat x.bin'), b'6\n')
    expect_equal('the verdict', scene.escrow('verify')[-100:].count(b'problem'), 0)
    expect_equal('sessions', os.listdir(scene.repository + '/escrow/sessions'), [])


def WhatIsNoExactPointerIsText(scene):
    oid = oid_of(b'x')
    exact = POINTER.format(oid, 1)
    texts = {
        'slashes': POINTER.format('../../../../../../etc/passwd'.ljust(64, '/'), 1),
        'capitals': POINTER.format(oid.upper(), 1),
        'zeroes': POINTER.format(oid, '01'),
        'negative': POINTER.format(oid, -1),
        'nothing': POINTER.format(oid, 0),
        'huge': POINTER.format(oid, 2**63 - 1),
        'larger': POINTER.format(oid, 10**19),
        'plus': POINTER.format(oid, '+5'),
        'hexadecimal': POINTER.format(oid, '0x5'),
        'old': exact.replace('https://git-lfs.github.com/spec/v1', 'https://hawser.github.com/spec/v1'),
        'returns': exact.replace('\n', '\r\n'),
        'more': exact + '\n',
        'less': exact[:-1],
        'extended': exact.replace('oid', f'ext-0-foo sha256:{oid}\noid'),
        'order': '\n'.join((*exact.splitlines()[:1], *exact.splitlines()[:0:-1])) + '\n',
        'md5': exact.replace('sha256', 'sha512'),
    }
    scene.push({'real.bin': b'x', **{name: text.encode() for name, text in texts.items()}},
               b'real.bin filter=lfs\n')
    shown = scene.run('for f in *; do echo "$f"; cat "$f"; echo; stat -c %s "$f"; done')
    expected = {**texts, 'real.bin': 'x'}
    expect_equal('what is shown', shown.decode(),
                 ''.join(f'{name}\n{text}\n{len(text)}\n' for name, text in sorted(expected.items())))
    # The largest there can be, and no object: a file of that size, of which no byte can be read.
    scene.run(f"printf '{POINTER.format(oid, 2**44)}' > vast", '--lfs', 'off')
    said = scene.run('stat -c %s vast; printf x | dd of=vast bs=1 seek=70 conv=notrunc 2>/dev/null || echo refused; '
                     'truncate -s 5 vast 2>/dev/null || echo refused; rm vast', '--lfs', 'on')
    expect_equal('the vast one', said.split()[:2], [b'17592186044416', b'refused'])
    scene.run('cp old what.bin; mv what.bin real.bin')
    expect_equal('what git-lfs takes for a pointer stays', scene.committed('real.bin').decode(), texts['old'])


def AnImportMakesPointersToo(scene):
    content = bytes_of(1, 9 * MIB)
    scene.escrow('init')
    os.makedirs(scene.path('tree/sub'))
    scene.write('tree/.gitattributes', b'*.bin filter=lfs\n')
    scene.write('tree/sub/.gitattributes', b'no.bin !filter\n')
    for name in ('a.bin', 'sub/b.bin', 'sub/no.bin', 'plain'):
        scene.write('tree/' + name, content)
    scene.escrow('import', scene.path('tree'), '-m', 'imported')
    for name in ('a.bin', 'sub/b.bin'):
        expect_equal(name, scene.committed(name), pointer_to(content))
    for name in ('sub/no.bin', 'plain'):
        expect_equal(name, scene.committed(name), content)
    expect_equal('the objects', scene.objects(), [oid_of(content)])
    again = scene.escrow('import', scene.path('tree'), '-m', 'again') + scene.errors.encode()
    expect(b'no commit' in again or b'nothing' in again, f'the same again: {again}')
    expect_equal('what is shown', scene.run('cat sub/b.bin'), content)


def VerifyReadsTheObjectsAndGcKeepsThem(scene):
    content = bytes_of(1, MIB)
    scene.push({'a.bin': content, 'b.bin': b'second'})
    scene.run('echo third > c.bin; rm b.bin')
    before = scene.objects()
    scene.escrow('gc')
    expect_equal('after a gc', scene.objects(), before)
    scene.escrow('verify')
    path = scene.object_path(content)
    os.chmod(path, 0o644)
    with open(path, 'r+b') as file:
        file.seek(1000)
        file.write(b'damage')
    said = scene.escrow('verify', status=1).decode()
    expect(oid_of(content) in said and 'a.bin' in said and 'git lfs fetch' in said, f'damaged bytes: {said}')
    os.truncate(path, 1000)
    expect('has 1000 bytes' in scene.escrow('verify', status=1).decode(), 'another size is not told')
    os.unlink(path)
    said = scene.escrow('verify', status=1).decode()
    expect(oid_of(content) in said and 'is not in' in said, f'a missing one: {said}')
    # Objects that no head names are git-lfs's business.
    scene.run('rm a.bin')
    scene.escrow('verify')


def ADamagedObjectIsReplacedByTheRightBytes(scene):
    content = bytes_of(1, MIB)
    scene.write('content', content)
    scene.push({'a.bin': content, 'b.bin': b'other'})

    def flip_a_byte(path):
        with open(path, 'r+b') as file:
            file.seek(5000)
            file.write(bytes([content[5000] ^ 1]))

    for number, damage in enumerate((flip_a_byte, lambda path: os.truncate(path, 5), os.unlink)):
        os.chmod(scene.object_path(content), 0o644)
        damage(scene.object_path(content))
        scene.run(f'cat {scene.path("content")} > again-{number}.bin')
        expect_equal(f'damage {number}', scene.run(f'cmp a.bin again-{number}.bin; cat a.bin'), content)
        scene.escrow('verify')
    # On another file system there are no links.
    elsewhere = os.path.join('/dev/shm', os.path.basename(scene.directory))
    os.mkdir(elsewhere)
    try:
        scene.git('-C', scene.repository, 'config', 'lfs.storage', elsewhere)
        scene.run('echo elsewhere > c.bin')
        expect_equal('elsewhere', scene.run('cat c.bin'), b'elsewhere\n')
        oid = oid_of(b'elsewhere\n')
        expect_equal('what lies there', [names for _, _, names in os.walk(elsewhere) if names], [[oid]])
    finally:
        shutil.rmtree(elsewhere)


def EditsOutliveTheHostAndGoBackToSavepoints(scene):
    content = bytes_of(1, 20 * MIB)
    scene.push({'a.bin': content})
    session = scene.mount()

    def edit(at, piece):
        with open(scene.path('mount/a.bin'), 'r+b') as file:
            file.seek(at)
            file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    edit(MIB, b'one')
    scene.escrow('savepoint', 'create', session, 'then')
    edit(10 * MIB, b'two')
    first = content[:MIB] + b'one' + content[MIB + 3:]
    second = first[:10 * MIB] + b'two' + first[10 * MIB + 3:]
    host = pid_of_host(scene, session)
    os.kill(host, signal.SIGKILL)
    eventually('the host is gone', lambda: not os.path.exists(f'/proc/{host}'))
    scene.call('fusermount3', '-uz', scene.path('mount'))
    scene.mount('--session', session)
    expect(scene.read('mount/a.bin') == second, 'an edit was lost')
    scene.escrow('savepoint', 'restore', session, 'then')
    expect(scene.read('mount/a.bin') == first, 'it is not what it was')
    scene.escrow('commit', session, '-m', 'back')
    expect_equal('the pointer', scene.committed('a.bin'), pointer_to(first))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--escrow', required=True)
    parser.add_argument('cases', nargs='+')
    arguments = parser.parse_args()
    if not shutil.which('git-lfs') or not os.path.exists('/dev/fuse'):
        sys.exit('there is no git-lfs or no /dev/fuse' if os.environ.get('REQUIRE_FUSE') == '1' else 77)

    def run(case):
        with contextlib.closing(Scene(arguments.escrow)) as scene:
            globals()[case](scene)

    run_cases(arguments.cases, run)


if __name__ == '__main__':
    main()
