#!/usr/bin/env python3
"""The tests of bucket_test.py over Ceph's RADOS gateway, which is started for them and stopped.

usage: run.py --escrow PATH [CASE...]
"""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PORT = 17480
ENDPOINT = f'http://127.0.0.1:{PORT}'
PUBLIC = {'Version': '2012-10-17', 'Statement': [{
    'Effect': 'Allow', 'Principal': '*', 'Action': 's3:GetObject', 'Resource': 'arn:aws:s3:::bucket/*'}]}


def put(path, body=''):
    subprocess.run(['curl', '--silent', '--show-error', '--fail', '--request', 'PUT', '--aws-sigv4',
                    'aws:amz:us-east-1:s3', '--user', 'AK:SK', '--header', 'x-amz-content-sha256: UNSIGNED-PAYLOAD',
                    '--data-binary', body, ENDPOINT + path], check=True)


def stop(directory):
    for name in ('rgw', 'osd', 'mon'):
        try:
            with open(f'{directory}/{name}.pid', encoding='ascii') as file:
                os.kill(int(file.read()), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--escrow', required=True)
    parser.add_argument('cases', nargs='*')
    arguments = parser.parse_args()
    if not shutil.which('radosgw'):
        sys.exit('there is no radosgw; run: apt-get install --no-install-recommends ceph-mon ceph-osd radosgw')
    directory = tempfile.mkdtemp(prefix='escrow-ceph-')
    try:
        began = time.monotonic()
        subprocess.run([HERE + '/ceph.sh', directory, str(PORT)], check=True)
        print(f'Ceph answered after {time.monotonic() - began:.0f} s', flush=True)
        put('/bucket')
        put('/bucket?policy=', json.dumps(PUBLIC))
        began = time.monotonic()
        status = subprocess.run([HERE + '/bucket_test.py', '--escrow', arguments.escrow, '--endpoint', ENDPOINT,
                                 *arguments.cases], check=False).returncode
        print(f'{"passed" if status == 0 else "failed"} in {time.monotonic() - began:.0f} s', flush=True)
    finally:
        stop(directory)
        shutil.rmtree(directory, ignore_errors=True)
    sys.exit(status)


if __name__ == '__main__':
    main()
