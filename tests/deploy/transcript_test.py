#!/usr/bin/env python3
"""Types the commands of README.md's transcript into one shell: each prints what the README says it prints.

Session and commit ids differ from run to run. Each id of the README stands for one id of this run, everywhere.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ID = re.compile(r"\b[0-9a-f]{40}\b|\b[0-9a-f]{16}\b|\b[0-9a-f]{12}\b")
DONE = "--- done ---"


def transcript(readme):
    """[(command, the output it should have)]"""
    with open(readme, encoding="utf-8") as file:
        block = re.search(r"^```console\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL).group(1)
    steps = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    return [step.split("\n", 1) for step in steps]


class Ids:
    """What the ids of the README are in this run."""

    def __init__(self):
        self.actual = {}

    def learn(self, expected, output):
        for documented, actual in zip(ID.findall(expected), ID.findall(output)):
            self.actual.setdefault(documented, actual)

    def translate(self, text):
        return ID.sub(lambda match: self.actual.get(match.group(0), match.group(0)), text)

    def translate_prefixes(self, command):
        for documented, actual in self.actual.items():
            command = re.sub(rf"\b{documented[:4]}\b", actual, command)
        return command


def ask(shell, command):
    shell.stdin.write(f"{command}\necho '{DONE}'\n")
    shell.stdin.flush()
    output = ""
    for line in shell.stdout:
        if line == f"{DONE}\n":
            return output
        output += line
    sys.exit(f"the shell ended at {command!r}: {output}")


def play(shell, directory, readme):
    ids = Ids()
    for command, expected in transcript(readme):
        output = ask(shell, ids.translate_prefixes(command))
        expected = expected.replace("/home/you", directory)
        ids.learn(expected, output)
        if output != ids.translate(expected):
            sys.exit(f"$ {command}\nprinted:\n{output}\n"
                     f"README.md says, with the ids of this run:\n{ids.translate(expected)}")


def main():
    readme, escrow = (os.path.abspath(path) for path in sys.argv[1:])
    if not os.path.exists("/dev/fuse") and os.environ.get("REQUIRE_FUSE") != "1":
        sys.exit(77)
    directory = tempfile.mkdtemp(prefix="escrow-transcript.")
    os.mkdir(f"{directory}/dataset")
    for name, text in (("config.yaml", "rate: 0.1\n"), ("train.csv", "a,1\nb,2\n")):
        with open(f"{directory}/dataset/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    environment = {"PATH": f"{os.path.dirname(escrow)}:{os.environ['PATH']}", "HOME": directory, "LC_ALL": "C.UTF-8"}
    shell = subprocess.Popen(["bash"], cwd=directory, env=environment, text=True, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        play(shell, directory, readme)
    finally:
        shell.stdin.close()
        shell.wait()
        subprocess.run(["umount", "--quiet", "--lazy", f"{directory}/work"], check=False)
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
