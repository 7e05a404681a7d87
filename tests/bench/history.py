#!/usr/bin/env python3
"""What a repository and an escrowd cost with 0, 10,000 and 1,000,000 sessions that have ended.

usage: history.py --build DIR [--sessions 0,10000,1000000] [--rounds 15] [--directory DIR]

The sessions are put straight into the databases (tests/support/ended_sessions.py). Prints a table of medians in
milliseconds. It is no test of speed: nothing fails because it was slow. Needs root and /dev/fuse.
"""
import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [f'{HERE}/../support', f'{HERE}/../escrowd']
from ended_sessions import add_ended_sessions, add_service_facts  # pylint: disable=wrong-import-position
from service import Service, request  # pylint: disable=wrong-import-position

PEERS = 48  # that list sessions at once while another one asks for the service's health


def milliseconds(work):
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def median(rounds, work):
    work()
    return statistics.median(milliseconds(work) for _ in range(rounds))


def measure(service, session, rounds):
    """What is shown, by its name."""
    def escrow(*arguments):
        subprocess.run([service.escrow_binary, '--repo', service.repository, *arguments], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    def get(target):
        answer = request(service.socket, 'GET', target)
        assert answer.status == 200, (target, answer.status, answer.body)
    def live():
        opened = service.open()['session']
        service.finish(opened, {'exit_code': 0}).expect(200)
    shown = {}
    for line in (('run', '--', 'true'), ('sessions',), ('status', session[:12]), ('audit', '--since', '1h')):
        shown['escrow ' + ' '.join(line)] = median(rounds, lambda line=line: escrow(*line))
    for target in ('/v1/health', '/metrics', '/v1/sessions?limit=1', '/v1/sessions?ended=false',
                   '/v1/sessions?limit=100&order=newest', '/v1/sessions?external_id=mine',
                   f'/v1/sessions?id_prefix={session[:6]}', '/v1/repositories/data/audit?limit=1'):
        shown['GET ' + target.replace(session[:6], 'PREFIX')] = median(rounds, lambda target=target: get(target))
    shown['opening and finish over the API'] = median(rounds, live)
    shown[f'GET /v1/health, slowest beside {PEERS} lists'] = beside_lists(service, get)
    return shown


def beside_lists(service, get):
    done, threads = threading.Event(), []
    def list_again():
        while not done.is_set():
            get('/v1/sessions?limit=100')
    for _ in range(PEERS):
        threads.append(threading.Thread(target=list_again))
        threads[-1].start()
    try:
        return max(milliseconds(lambda: get('/v1/health')) for _ in range(50))
    finally:
        done.set()
        for thread in threads:
            thread.join()


def resident_megabytes(pid):
    with open(f'/proc/{pid}/status', encoding='ascii') as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith('VmHWM:')) / 1024


def measure_all(build, counts, rounds):
    columns = {}
    for count in counts:
        with Service(f'{build}/daemon/escrow', f'{build}/daemon/escrowd') as service:
            session = service.open(external_id='mine')['session']
            ended = service.open()['session']
            service.finish(ended, {'exit_code': 0}).expect(200)
            service.stop()
            if count:
                add_ended_sessions(service.repository, ended, count)
                add_service_facts(f'{service.directory}/state', ended, count)
            started = milliseconds(service.start)
            columns[count] = {'start of escrowd': started, **measure(service, session, rounds),
                              'resident memory of escrowd, at most (MiB)': resident_megabytes(service.process.pid)}
            service.stop(signal.SIGTERM)
            print(f'{count} sessions: measured', file=sys.stderr)
    return columns


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--build', required=True)
    parser.add_argument('--sessions', default='0,10000,1000000')
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--directory', help='where to work')
    arguments = parser.parse_args()
    tempfile.tempdir = arguments.directory
    counts = [int(count) for count in arguments.sessions.split(',')]
    columns = measure_all(os.path.abspath(arguments.build), counts, arguments.rounds)
    print('| ms | ' + ' | '.join(f'{count:,}' for count in counts) + ' |')
    print('|---|' + '---|' * len(counts))
    for name in columns[counts[0]]:
        print(f'| `{name}` | ' + ' | '.join(f'{columns[count][name]:.1f}' for count in counts) + ' |')


if __name__ == '__main__':
    main()
