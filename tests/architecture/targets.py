"""The targets of a CMakeLists.txt and their sources, as tests/CMakeLists.txt finds those of tests by their names."""
import fnmatch
import os
import re

COMMAND = re.compile(r"\b(add_library|add_executable|escrow_test|take_tests)\(([^)]*)\)")


def targets(listing, text, files):
    """(target, [paths of the sources]) of each target that the CMakeLists.txt `listing` makes; `files`: all sources."""
    folder = os.path.dirname(listing)
    below = sorted(os.path.relpath(path, folder) for path in files if path.startswith(folder + "/"))
    taken, variables = set(), {}

    def take(patterns):
        found = [path for path in below if path not in taken and any(matches(path, pattern) for pattern in patterns)]
        taken.update(found)
        return found

    for command, words in COMMAND.findall(re.sub(r"#[^\n]*", "", text)):
        name, *words = words.split()
        if command == "take_tests":
            variables[f"${{{name}}}"] = take(words)
            continue
        kind, tests, sources = "SOURCES", [], []
        for word in words:
            if re.fullmatch(r"[A-Z]+", word):
                kind = word
            elif kind == "TESTS":
                tests.append(word)
            else:
                sources += variables.get(word, [word] if word.endswith(".cc") else [])
        paths = [os.path.normpath(os.path.join(folder, word)) for word in take(tests) + sources]
        yield name, [path for path in paths if path in files]


def matches(path, pattern):
    """As file(GLOB): * is no slash."""
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)
