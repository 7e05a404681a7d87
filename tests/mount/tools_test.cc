// Programs that people run every day, over a session's mount: files, archives, copies, editors, Python.
#include "tests/mount/tools_fixture.h"

namespace escrow::test {
namespace {

TEST_F(Tools, PythonCopiesMovesReplacesAndRemovesTrees) {
  same_as_on_the_host(R"sh(python3 - <<'END'
import hashlib, json, os, pathlib, shutil, stat, tempfile
shutil.copytree('dir', 'copy')
shutil.move('copy/sub', 'moved')
shutil.copy2('a.txt', 'a-again.txt')
print(os.stat('a.txt').st_mtime_ns == os.stat('a-again.txt').st_mtime_ns)
os.makedirs('deep/' + '/'.join('level%d' % n for n in range(20)))
for n in range(300):
    pathlib.Path('deep/f%03d' % n).write_bytes(hashlib.sha256(b'%d' % n).digest() * (n % 50))
with open('state.tmp', 'w') as f:
    json.dump({'numbers': list(range(1000)), 'name': 'r\u00e9sum\u00e9'}, f)
    f.flush(); os.fsync(f.fileno())
os.replace('state.tmp', 'a.txt')
print(len(json.load(open('a.txt'))['numbers']))
with open('log', 'ab', buffering=0) as f:
    for n in range(100): f.write(b'line %d\n' % n)
with open('log', 'r+b') as f:
    f.seek(10); f.write(b'HERE'); f.truncate(500); f.seek(0, 2); print(f.tell())
os.symlink('../log', 'deep/link'); os.link('log', 'hard'); os.chmod('log', 0o755)
print(os.stat('hard').st_nlink, oct(stat.S_IMODE(os.stat('hard').st_mode)), os.readlink('deep/link'))
with tempfile.TemporaryDirectory(dir='.') as d:
    pathlib.Path(d, 'x').write_text('x')
with tempfile.TemporaryFile(dir='.') as f:
    f.write(b'y' * 100000); f.seek(0); print(len(f.read()))
print(sorted(e.name for e in os.scandir('.')))
print(sum(len(files) for _, _, files in os.walk('.')))
try: os.rmdir('deep')
except OSError as e: print(e.errno)
shutil.rmtree('dir')
END
)sh");
}

TEST_F(Tools, PythonUsesASharedMappingAsAFile) {
  same_as_on_the_host(R"sh(python3 - <<'END'
import mmap, os
with open('mapped', 'w+b') as f:
    f.truncate(1 << 20)
    with mmap.mmap(f.fileno(), 1 << 20) as m:
        for at in range(0, 1 << 20, 5000): m[at:at + 7] = b'%07d' % at
        m.flush()
        print(os.pread(f.fileno(), 7, 500000))
        os.pwrite(f.fileno(), b'by pwrite', 4096)
        print(m[4096:4105], m.find(b'500000'))
        m[-1:] = b'z'  # not flushed
child = os.fork()
if child == 0:
    f = open('mapped', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[8192:8197] = b'child'; os._exit(0)
os.waitpid(child, 0)
print(open('mapped', 'rb').read()[8192:8197])
END
)sh");
}

TEST_F(Tools, PythonSqliteCommitsAndRollsBack) {
  same_as_on_the_host(R"sh(python3 - <<'END'
import os, sqlite3
for mode in 'delete', 'truncate', 'persist', 'wal':
    db = sqlite3.connect(mode + '.db')
    print(db.execute('pragma journal_mode=' + mode).fetchone())
    db.execute('create table t (n integer primary key, text)')
    with db: db.executemany('insert into t (text) values (?)', [('x' * n,) for n in range(500)])
    try:
        with db:
            db.execute('delete from t'); raise KeyError
    except KeyError: pass
    print(db.execute('select count(*), sum(length(text)) from t').fetchone())
    other = sqlite3.connect(mode + '.db', timeout=0)
    db.execute('begin immediate')
    try: other.execute('begin immediate')
    except sqlite3.OperationalError as e: print(e)
    db.rollback(); other.close(); db.close()
    if mode == 'persist': os.remove('persist.db-journal')  # holds a random number
END
)sh");
}

TEST_F(Tools, TarKeepsModesLinksAndTimes) {
  same_as_on_the_host(R"sh(
mkdir tree tree/empty tree/long; echo run > tree/tool; chmod 755 tree/tool; echo secret > tree/private
chmod 600 tree/private; ln -s tool tree/soft; ln -s /nowhere tree/dangling; ln tree/tool tree/hard
echo n > "tree/long/$(printf '%0255d' 0)"; touch -d '2001-02-03 04:05:06.789' tree/tool tree/long tree
tar -cf tree.tar --sort=name --owner=0 --group=0 --format=posix --pax-option=delete=atime,delete=ctime \
  --mtime='2020-01-01' tree
mkdir out; tar -xpf tree.tar -C out; tar -tf tree.tar; tar -df tree.tar -C out
stat -c '%n %A %h %Y' out/tree/tool out/tree/private; stat -c '%n %A %Y' out/tree/empty out/tree/long out/tree
test out/tree/tool -ef out/tree/hard && readlink out/tree/soft out/tree/dangling
tar -cf - tree | tar -xf - -C dir; stat -c '%n %A %y' dir/tree/tool dir/tree/long dir/tree
truncate -s 8M sparse; printf data | dd of=sparse bs=1 seek=4M conv=notrunc status=none
tar -cSf sparse.tar sparse; rm sparse; tar -xSf sparse.tar; sha256sum sparse; rm sparse.tar
)sh");
}

TEST_F(Tools, ASecondRsyncTransfersNothing) {
  same_as_on_the_host(R"sh(
mkdir -p from/x/y; seq 1 5000 > from/numbers; cp /bin/ls from/x/binary; chmod 750 from/x/y; ln -s numbers from/link
ln from/numbers from/x/hard; touch -d '1999-12-31 23:59:59.123456789' from/x/y from/numbers from
rsync -aH from/ to; rsync -aH --itemize-changes from/ to; rsync -acH --itemize-changes from/ to
stat -c '%n %h' to/numbers; stat -c '%n %A %y' to/numbers to/x/y
echo more >> from/numbers; rm from/link; rsync -aH --delete --itemize-changes --out-format='%i %n' from/ to
rsync -a --inplace --no-whole-file from/ to; diff -r from to
)sh");
}

TEST_F(Tools, FindGrepDuCpMvAndRm) {
  same_as_on_the_host(R"sh(
mkdir big; i=0; while [ $i -lt 400 ]; do echo "number $i" > big/f$i; i=$((i+1)); done
find . -type f | sort | sha256sum; find big -name '*7' -newer a.txt | sort; grep -rl 'number 3[0-9]$' big | sort
grep -rc number big | cut -d: -f2 | sort | uniq -c; find . -type d -links +0 | sort
truncate -s 1234567 big/hollow; du -s --apparent-size -B1 big/hollow | cut -f1
du -B1 big/hollow | cut -f1
cp -a big copy; diff -r big copy; stat -c '%y' big/f1 > one; stat -c '%y' copy/f1 | cmp - one; rm one
mv copy dir/moved; ls dir/moved | wc -l; mv dir/moved/f1 dir/moved/f2; cp -al dir/moved linked
stat -c %h linked/f2; echo changed > linked/f2; cat dir/moved/f2; rm -rf big linked; ls; ls -1U dir/moved | wc -l
find dir/moved -name 'f1*' -delete; find dir/moved -type f | wc -l; cp --reflink=auto a.txt reflinked; tail -c 3 a.txt
)sh");
}

TEST_F(Tools, SedPatchAndOtherEditorsReplaceFiles) {
  same_as_on_the_host(R"sh(
seq 1 200 > n; chmod 755 n; sed -i 's/^1/one/' n; stat -c %A n; head -3 n; sed -i.bak '/7$/d' n a.txt
cp n m; sed -i 's/one0/ten/' m; diff -u n m > change.diff || true; sed -i '1,2s/\t.*//' change.diff
patch -p0 n < change.diff; cmp n m; patch -R -p0 n < change.diff; ! cmp -s n m; ls
printf 'unchanged\n' > doc; printf 'saved\n' > .doc.swp; sync .doc.swp; mv -f .doc.swp doc; sync .; cat doc
python3 - <<'END'
import os  # as editors save: a backup by link, a temporary file, fsync, rename, fsync of the directory
os.link('doc', 'doc~')
fd = os.open('doc.new', os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
os.write(fd, b'second save\n'); os.fchmod(fd, 0o644); os.fsync(fd); os.close(fd)
os.rename('doc.new', 'doc')
d = os.open('.', os.O_RDONLY | os.O_DIRECTORY); os.fsync(d); os.close(d)
print(open('doc').read(), open('doc~').read(), os.stat('doc~').st_nlink)
END
)sh");
}

}  // namespace
}  // namespace escrow::test
