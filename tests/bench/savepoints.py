#!/usr/bin/env python3
"""What a savepoint costs with 1, 1,000 and 100,000 staged files: made, one file changed, gone back to, dropped."""
import argparse
import os
import subprocess
import tempfile
import threading
import time


class Stall:
    """The longest that a program which goes on writing had to wait for one write(2)."""

    def __init__(self, path):
        self.longest, self.stopped = 0.0, False
        self.thread = threading.Thread(target=self.write, args=(path,))
        self.thread.start()

    def write(self, path):
        with open(path, "wb", buffering=0) as file:
            while not self.stopped:
                start = time.monotonic()
                file.write(b"x")
                self.longest = max(self.longest, time.monotonic() - start)
                time.sleep(0.0005)

    def end(self):
        self.stopped = True
        self.thread.join()
        return self.longest


def measure(escrow, files, rounds):
    with tempfile.TemporaryDirectory(prefix="escrow-bench-") as top:
        repository, mount = f"{top}/data.git", f"{top}/mnt"
        run = lambda *words: subprocess.run([escrow, "--repo", repository, *words], check=True, text=True,
                                            stdout=subprocess.PIPE).stdout
        run("init")
        os.mkdir(mount)
        session = run("mount", mount).split()[-1]
        try:
            for index in range(files):
                directory = f"{mount}/d{index // 1000}"
                if index % 1000 == 0:
                    os.mkdir(directory)
                with open(f"{directory}/f{index}", "w", encoding="ascii") as file:
                    file.write(f"content {index}\n")
            os.sync()
            times = {"create": [], "pause": [], "restore": [], "drop": []}

            def timed(verb, name):
                start = time.monotonic()
                run("savepoint", verb, session, name)
                times[verb].append(time.monotonic() - start)

            for number in range(rounds):
                stall = Stall(f"{mount}/written")
                timed("create", f"s{number}")
                times["pause"].append(stall.end())
                with open(f"{mount}/d0/f0", "w", encoding="ascii") as file:
                    file.write(f"changed {number}\n")
                timed("restore", f"s{number}")
                timed("drop", f"s{number}")
            cells = " | ".join(f"{1000 * sorted(values)[len(values) // 2]:.0f} ms" for values in times.values())
            print(f"| {files:,} | {cells} |", flush=True)
        finally:
            run("rollback", session)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--files", type=int, nargs="+", default=[1, 1000, 100000])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print("| staged files | create | longest write(2) meanwhile | restore | drop |\n|---|---|---|---|---|")
    for files in given.files:
        measure(f"{given.build}/daemon/escrow", files, given.rounds)


if __name__ == "__main__":
    main()
