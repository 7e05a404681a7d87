"""The clocks of a service, which a test moves (moved_clock.cc), so that hours pass at once.

Leases are the exception: they count the time in which clients could renew them, and a jump adds at most half a second
to that. A test that needs a lease to run out gives it a short one.
"""
import os
import struct
import time

from service import expect

HOUR_S, DAY_S = 3_600, 86_400
LIBRARY = os.environ.get('MOVED_CLOCK_LIBRARY', '')


class Clock:
    """The clocks of one service. A service that runs already is restarted, because they are loaded at its start."""

    def __init__(self, service):
        self.path = f'{service.directory}/clock'
        self.service, self.wall_s, self.boot_s = service, 0, 0
        self.write()
        was_started = service.process is not None
        if was_started and service.process.poll() is None:
            service.stop()
        service.before = ['env', f'LD_PRELOAD={LIBRARY}', f'MOVED_CLOCK={self.path}',
                          'ASAN_OPTIONS=verify_asan_link_order=0', *service.before]
        if was_started:
            service.start()

    def write(self):
        # Mapped by the service: written, never replaced.
        with open(self.path, 'r+b' if os.path.exists(self.path) else 'wb') as file:
            file.write(struct.pack('=qq', self.wall_s, self.boot_s))

    def move(self, wall_s=0, boot_s=0):
        """Sets the wall clock, and the time since the machine's start, forward by these; back if they are negative."""
        if self.service.process.poll() is None:
            with open(f'/proc/{self.service.process.pid}/maps', encoding='utf-8') as maps:
                expect('moved_clock' in maps.read(), 'no clock is moved')
        self.wall_s += wall_s
        self.boot_s += boot_s
        self.write()

    def advance(self, seconds):
        """Time passes: both clocks go forward."""
        self.move(wall_s=seconds, boot_s=seconds)

    def now(self):
        """What the wall clock of the service says."""
        return time.time() + self.wall_s
