#!/usr/bin/env python3
"""escrowd's options: by flag, by the environment, by the file, and which of them wins."""
import json
import os
import re
import subprocess

from service import eventually, expect, expect_equal, fail, main

# The option, its variable, its member of the file, and what shows there that it was heeded.
OPTIONS = (
    ('--socket', 'ESCROWD_SOCKET', lambda path: {'socket': path}, ''),
    ('--state-directory', 'ESCROWD_STATE_DIRECTORY', lambda path: {'state_directory': path}, '/escrowd.db'),
    ('--volume-plugin', 'ESCROWD_VOLUME_PLUGIN', lambda path: {'volume_plugin': {'socket': path, 'runtimes': []}}, ''),
)


def write_config(service, name, **members):
    path = f'{service.directory}/{name}.json'
    with open(path, 'w', encoding='utf-8') as file:
        json.dump({**service.config, **members}, file)
    return path


def started(service, arguments, environment, sign):
    """Runs escrowd until the file is there."""
    with subprocess.Popen([service.escrowd_binary, *arguments], env={**os.environ, **environment},
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        def is_there():
            if process.poll() is not None:
                fail(f'{arguments} {environment}: {process.stderr.read()}')
            return os.path.exists(sign)
        eventually(f'{sign}, of {arguments} {environment}', is_there)
        process.terminate()
        expect_equal('the exit status', process.wait(100), 0)


def TheFlagWinsOverTheEnvironmentAndThatOverTheFile(start):
    with start() as service:
        service.stop()
        for option, variable, member, below in OPTIONS:
            paths = {name: f'{service.directory}/{name}{option}' for name in ('file', 'environment', 'flag')}
            config = ['--config', write_config(service, 'options', **member(paths['file']))]
            ways = ([], {}), ([], {variable: paths['environment']}), ([option, paths['flag']],
                                                                        {variable: paths['environment']})
            for number, (arguments, environment) in enumerate(ways):
                wins = list(paths.values())[number]
                started(service, [*config, *arguments], environment, wins + below)
                for path in list(paths.values())[number + 1:]:
                    expect(not os.path.exists(path), f'{option}: {path} is there, {wins} was asked for')
        other = write_config(service, 'other', socket=f'{service.directory}/other.sock')
        started(service, [], {'ESCROWD_CONFIG': other}, f'{service.directory}/other.sock')
        own = write_config(service, 'own', socket=f'{service.directory}/own.sock')
        started(service, ['--config', own], {'ESCROWD_CONFIG': other}, f'{service.directory}/own.sock')


def WithVerboseEverythingIsLogged(start):
    with start() as service:
        service.stop()
        def answers():
            try:
                return service.get('/v1/health').status == 200
            except OSError:
                return False
        def log_of(*arguments, **members):
            path = write_config(service, 'verbose', **members)
            with open(f'{service.directory}/log-of-verbose', 'wb') as log:
                with subprocess.Popen([service.escrowd_binary, '--config', path, *arguments], stderr=log) as process:
                    service.process = process
                    eventually('it answers', answers)  # its socket is there before anybody listens
                    session = service.open(lease_ms=1)['session']
                    eventually('its lease runs out', lambda: service.state(session) == 'rolled_back')
                    process.terminate()
                    process.wait(100)
            return os.path.getsize(f'{service.directory}/log-of-verbose')
        usual = log_of()
        for more in (log_of('--verbose'), log_of(verbose=True)):
            expect(more > usual, f'{more} bytes of log with verbose, {usual} without')


def run(service, *arguments, **environment):
    return subprocess.run([service.escrowd_binary, *arguments], env={**os.environ, **environment}, text=True,
                          capture_output=True, check=False, timeout=300)


def BadOptionsAreOneClearSentence(start):
    with start() as service:
        config = ['--config', service.config_path, '--check-config']
        missing, directory = f'{service.directory}/missing', service.directory
        for arguments, environment, words in (
                ([*config, '--socket', 'here'], {}, '"socket" is not an absolute path'),
                (config, {'ESCROWD_SOCKET': 'here'}, '"socket" is not an absolute path'),
                ([*config, '--state-directory', 'here'], {}, '"state_directory" is not an absolute path'),
                (config, {'ESCROWD_STATE_DIRECTORY': 'here'}, '"state_directory" is not an absolute path'),
                ([*config, '--volume-plugin', 'here'], {}, '"volume_plugin.socket" is not an absolute path'),
                (config, {'ESCROWD_VOLUME_PLUGIN': 'here'}, '"volume_plugin.socket" is not an absolute path'),
                (['--config', missing], {}, f'cannot read the configuration {missing}'),
                ([], {'ESCROWD_CONFIG': missing}, f'cannot read the configuration {missing}'),
                (['--config', directory], {}, f'cannot read the configuration {directory}'),
                ([*config, '--colour'], {}, '--colour'), ([*config, 'word'], {}, 'word'),
                ([*config, '--socket'], {}, '--socket')):
            answer = run(service, *arguments, **environment)
            said = f'{arguments} {environment}: {answer}'
            expect_equal(said, answer.returncode, 2)
            expect(words in answer.stderr and answer.stderr.strip().count('\n') <= 1, said)
            expect('Run with --help' in answer.stderr or answer.stderr.count('\n') == 1, said)


def HelpNamesEveryOptionAndItsVariable(start):
    with start() as service:
        answer = run(service, '--help')
        expect_equal('its exit status', answer.returncode, 0)
        for option, variable, _, _ in (*OPTIONS, ('--config', 'ESCROWD_CONFIG', None, None)):
            expect(re.search(rf'{option} \w+.*\({variable}\)|{option} \w+ .*{variable}', answer.stdout) is not None,
                   f'{option} and {variable}: {answer.stdout}')
        expect_equal('the variables', set(re.findall(r'ESCROWD_\w+', answer.stdout)),
                     {variable for _, variable, _, _ in OPTIONS} | {'ESCROWD_CONFIG'})
        token = run(service, '--make-token')
        expect(re.fullmatch(r'token \S+\nhash  \S+\n', token.stdout) is not None, token.stdout)
        expect(re.fullmatch(r'escrowd \d+\.\d+\.\d+\n', run(service, '--version').stdout) is not None, 'the version')


if __name__ == '__main__':
    main(globals())
