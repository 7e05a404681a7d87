#!/usr/bin/env python3
"""The package of the Python client: its types, its language, its wheel. No service."""
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from client import ROOT, expect, expect_equal, fail, main

SOURCE = f'{ROOT}/api/python'
OLDEST = (3, 9)


def skip_without(found, package):
    if not found:
        print(f'{package} is not installed: deploy/setup.sh test')
        sys.exit(77)


def TheTypesAreComplete(start):
    """mypy --strict finds nothing, against the standard library of the oldest Python; nothing else is imported."""
    del start
    for name in sorted(os.listdir(f'{SOURCE}/escrow')):
        if name.endswith('.py'):
            with open(f'{SOURCE}/escrow/{name}', encoding='utf-8') as file:
                tree = ast.parse(file.read(), name, feature_version=OLDEST)
            for node in ast.walk(tree):
                names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
                foreign = [one for one in names if one.split('.')[0] not in sys.stdlib_module_names]
                expect_equal(f'what {name} imports beside the standard library', foreign, [])
    skip_without(shutil.which('mypy'), 'mypy')
    with tempfile.TemporaryDirectory(prefix='escrow-mypy-') as cache:
        use = f'{cache}/use.py'
        with open(use, 'w', encoding='utf-8') as file:
            file.write('import escrow\nreveal_type(escrow.connect().gather([]))\nescrow.connect().spawn(5, [])\n')
        ran = subprocess.run(['mypy', '--strict', '--python-version', '.'.join(map(str, OLDEST)), '--cache-dir', cache,
                              '-p', 'escrow'], cwd=SOURCE, capture_output=True, text=True, check=False, timeout=500)
        expect_equal(f'mypy: {ran.stdout}{ran.stderr}', ran.returncode, 0)
        ran = subprocess.run(['mypy', '--strict', '--cache-dir', cache, use], cwd=cache, capture_output=True, text=True,
                             check=False, timeout=500, env={**os.environ, 'MYPYPATH': SOURCE})
        expect('list[escrow._documents.RunResult]' in ran.stdout, f'the type of gather() is not said: {ran.stdout}')
        expect('has incompatible type "int"' in ran.stdout, f'a wrong argument is not found: {ran.stdout}')


def TheWheelHasThePackage(start):
    """Built without a network, and used from where it was unpacked."""
    del start
    # Debian's packages are those of Debian's Python.
    pythons = [one for one in ('/usr/bin/python3', sys.executable) if subprocess.run(
        [one, '-c', 'import setuptools, wheel'], check=False, capture_output=True).returncode == 0]
    skip_without(pythons, 'python3-setuptools or python3-wheel')
    with tempfile.TemporaryDirectory(prefix='escrow-wheel-') as place:
        shutil.copytree(SOURCE, f'{place}/source', ignore=shutil.ignore_patterns('__pycache__', '*.egg-info', 'build'))
        build = 'import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))'
        ran = subprocess.run(['unshare', '--net', pythons[0], '-c', build, f'{place}/wheel'], cwd=f'{place}/source',
                             check=False, capture_output=True, text=True, timeout=500)
        if ran.returncode != 0:
            fail(f'the wheel was not built: {ran.stdout}{ran.stderr}')
        name, = os.listdir(f'{place}/wheel')
        expect(re.fullmatch(r'escrow_client-[\d.]+-py3-none-any\.whl', name), f'the wheel is {name}')
        with zipfile.ZipFile(f'{place}/wheel/{name}') as wheel:
            names = {one for one in wheel.namelist() if one.startswith('escrow/')}
            wheel.extractall(f'{place}/installed')
        there = {f'escrow/{one}' for one in os.listdir(f'{SOURCE}/escrow') if one.endswith(('.py', '.typed'))}
        expect_equal('the files', names, there)
        ran = subprocess.run([sys.executable, '-I', '-W', 'error', '-c', 'import sys; sys.path.insert(0, sys.argv[1]); '
                              'import escrow; print(escrow.__file__, escrow.__version__)', f'{place}/installed'],
                             check=False, capture_output=True, text=True, timeout=300)
        expect_equal(f'what is imported: {ran.stderr}', ran.stdout, f'{place}/installed/escrow/__init__.py 0.1.0\n')


if __name__ == '__main__':
    main(globals())
