#!/usr/bin/env python3
"""What a repository and an escrowd cost with 0, 10,000 and 1,000,000 sessions that have ended.

usage: history.py --build DIR [--sessions 0,10000,1000000] [--rounds 15] [--directory DIR]

The sessions are put straight into the databases (tests/support/ended_sessions.py). Prints a table of medians in
milliseconds, with the processor time of the command or of escrowd in parentheses, which others on the machine disturb
little. It is no test of speed: nothing fails because it was slow. Needs root and /dev/fuse.
"""
import argparse
import os
import resource
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

SHOWN = 150  # sessions that have ended beside the history, so that each list has its page
PEERS = 48  # that list sessions at once while another one asks for the service's health


def milliseconds(work):
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def children_time():
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) * 1000


def processor_time(pid):
    """In milliseconds, of the threads that a process has now and of the children that this one has waited for."""
    total = children_time()
    for thread in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{thread}/schedstat', encoding='ascii') as numbers:
            total += int(numbers.read().split()[0]) / 1e6
    return total


def median(rounds, pid, work):
    """(time, processor time)"""
    work()
    samples = []
    for _ in range(rounds):
        before = processor_time(pid)
        taken = milliseconds(work)
        samples.append((taken, processor_time(pid) - before))
    return tuple(statistics.median(values) for values in zip(*samples))


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
    shown, pid = {}, service.process.pid
    for line in (('run', '--', 'true'), ('sessions',), ('status', session[:12]), ('audit', '--since', '1h')):
        name = '`escrow ' + ' '.join(line).replace(session[:12], 'PREFIX') + '`'
        shown[name] = median(rounds, pid, lambda line=line: escrow(*line))
    for target in ('/v1/health', '/metrics', '/v1/sessions?limit=1', '/v1/sessions?ended=false',
                   '/v1/sessions?limit=100&order=newest', '/v1/sessions?external_id=mine',
                   f'/v1/sessions?id_prefix={session[:6]}', '/v1/repositories/data/audit?limit=1'):
        name = '`GET ' + target.replace(session[:6], 'PREFIX') + '`'
        shown[name] = median(rounds, pid, lambda target=target: get(target))
    shown['opening and finish over the API'] = median(rounds, pid, live)
    shown[f'GET /v1/health, slowest beside {PEERS} lists'] = (beside_lists(service, get),)
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
        return max(milliseconds(lambda: get('/v1/health')) for _ in range(20))
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
            add_ended_sessions(service.repository, ended, count + SHOWN)
            add_service_facts(f'{service.directory}/state', ended, count + SHOWN)
            columns[count] = {'start of escrowd': (milliseconds(service.start),
                                                   processor_time(service.process.pid) - children_time()),
                              **measure(service, session, rounds),
                              'resident memory of escrowd, at most (MiB)': (resident_megabytes(service.process.pid),)}
            service.stop(signal.SIGTERM)
            print(f'{count} sessions: measured', file=sys.stderr)
    return columns


def in_words(taken, processor=None):
    return f'{taken:.1f}' + ('' if processor is None else f' ({processor:.1f})')


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
        print(f'| {name} | ' + ' | '.join(in_words(*columns[count][name]) for count in counts) + ' |')


if __name__ == '__main__':
    main()
