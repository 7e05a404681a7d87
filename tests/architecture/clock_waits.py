"""The rule that tests do not wait by the clock, as patterns of text; check_sources.py runs it with the others.

It finds in tests/**/*.{cc,h,py,sh}
- a sleep, outside the one helper of each language that polls for a condition;
- an upper bound on a measured time that is asserted, which a busy machine breaks;
- an effect on the whole machine, unless each ctest test that has it holds a RESOURCE_LOCK or is RUN_SERIAL.

It leaves alone the shell and Python text in string literals, which is the work that a test starts (`sleep 1000` as a
victim, a loop of the command's own); lower bounds; and time-outs of a wait for a condition. It reads line by line, and
sees neither a bound in a variable of another name nor `future.wait_for(50ms)` as proof that something does not happen.

clock_exceptions.txt has a line `file: count` for each file that still has some. More is a violation, and so is fewer,
until the line is lowered: the list only shrinks.
"""
import os
import re

EXCEPTIONS = "tests/architecture/clock_exceptions.txt"
POLLS = ("tests/session/eventually.h", "tests/support/expectations.py")  # where the sleep between two looks stands
SLEEP = {
    "c++": re.compile(r"\bu?sleep\(|\b(clock_)?nanosleep\(|\bsleep_(for|until)\("),
    "python": re.compile(r"\bsleep\("),
    "shell": re.compile(r"\bsleep\s+[\d.$\"]"),
}
UPPER_BOUND = {
    "c++": re.compile(
        r"_L[TE]\(.*([Cc]lock::now\(\)|\b[\d']+(ms|s|us|min)\b|\b(micro|milli)?seconds\(|\bminutes\()"
        r"|(EXPECT|ASSERT)_TRUE\(.*[Cc]lock::now\(\) - \w+ <"),
    "python": re.compile(
        r"\b(expect|assert)\w*\b.*(\b(time|monotonic|perf_counter)\(\) - \w+|\b(seconds|slowest|took|taken|elapsed)) <"
        r"|\bassertLess(Equal)?\(.*\b(time|monotonic|perf_counter|seconds|slowest|took|taken|elapsed)\b"
        r"|\bif\b.*\b(time|monotonic|perf_counter)\(\) - \w+ >"),
    "shell": re.compile(r"\bSECONDS\b.*-(lt|le|gt|ge)\b"),
}
MACHINE_WIDE = re.compile(  # in string literals too: they are what is run or opened
    r"\bos\.sync\(\)|(?<!\w)::sync\(\)|\bp[k]ill\b|\bkill[a]ll\b|\b(clock_[s]ettime|[s]ettimeofday|[a]djtimex)\b"
    r"|\bdate (-s|--set)\b|> ?/(proc/sys|sys)/|open\([^)]*[\"']/(proc/sys|sys)/[^)]*[\"'][wa]")
LOCK = re.compile(r"\bRESOURCE_LOCK\b|\bRUN_SERIAL\b")
LITERALS = {
    "c++": r"(//[^\n]*|/\*.*?\*/)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'",
    "python": r"(#[^\n]*)|\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
    "shell": r"((?<![^\s;])#[^\n]*)",
}


def language_of(path):
    return {".py": "python", ".sh": "shell"}.get(os.path.splitext(path)[1], "c++")


def blanked(language, text, strings):
    """The text with its comments, and with `strings` its string literals, blanked; lines and columns are kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0)) if strings or match.group(1) else match.group(0)
    return re.sub(LITERALS[language], blank, text, flags=re.DOTALL)


def found_in(path, text, listing):
    """(line, what is wrong) of each place in a file, given the CMakeLists.txt of its folder."""
    language = language_of(path)
    code = blanked(language, text, True).split("\n")
    whole = blanked(language, text, False).split("\n")
    case = None
    for number, (bare, line) in enumerate(zip(code, whole), 1):
        function = re.match(r"def (\w+)|TEST(?:_F|_P)?\(\w+, (\w+)", line)
        case = function.group(1) or function.group(2) if function else case
        if path not in POLLS and SLEEP[language].search(bare):
            yield number, "sleeps: wait for the condition itself, with eventually()"
        if UPPER_BOUND[language].search(bare):
            yield number, "proves something by a time that a busy machine exceeds: observe the cause"
        if MACHINE_WIDE.search(line) and not has_lock(path, case, listing):
            yield number, "acts on the whole machine: give its ctest test a RESOURCE_LOCK"


def has_lock(path, case, listing):
    """Whether each ctest test that may run `case` of the file is locked: those of that name, of the file, or of all."""
    commands = re.findall(r"\w+\([^()]*\)", re.sub(r"#[^\n]*", "", listing))
    stem = re.escape(os.path.splitext(os.path.basename(path))[0])
    own = [c for c in commands if re.search(rf"(?<![\w.]){stem}(\.(cc|h|py|sh))?(?![\w.])", c)]
    tests = {t for c in own or commands for t in re.findall(r"\b[A-Z]\w*\.[A-Z]\w*\b", c)}
    tests = {t for t in tests if t.split(".")[1] == case} or tests
    locks = [c for c in commands if LOCK.search(c)]
    if not tests:
        return any(c in locks for c in own)
    return all(any(re.search(rf"\b{re.escape(t)}\b", c) for c in locks) for t in tests)


def listed(sources):
    """{file: (line, count)} of the list of exceptions, and the violations of its form."""
    counts, wrong = {}, []
    for number, line in enumerate(sources.text.get(EXCEPTIONS, "").splitlines(), 1):
        match = re.fullmatch(r"(\S+): ([1-9]\d*)", line)
        if match and match.group(1) not in counts:
            counts[match.group(1)] = number, int(match.group(2))
        elif not line.startswith("#"):
            wrong.append((EXCEPTIONS, number, "is no `file: count` line of a file that has none yet"))
    return counts, wrong


def clock_waits(sources):
    """Tests wait for conditions, prove no upper bound in seconds, and lock what acts on the whole machine."""
    counts, wrong = listed(sources)
    yield from wrong
    for path, text in sources.having(".cc", ".h", ".py", ".sh", folders=("tests",)):
        listing = sources.text.get(os.path.dirname(path) + "/CMakeLists.txt", "")
        found = list(found_in(path, text, listing))
        line, count = counts.pop(path, (None, 0))
        if len(found) > count:
            for number, message in found:
                yield path, number, f"{message} ({len(found)} found, {count} listed in {EXCEPTIONS})"
        elif len(found) < count:
            yield EXCEPTIONS, line, f"{path} has {len(found)} left, not {count}: lower or remove its line"
    for path, (line, _) in counts.items():
        yield EXCEPTIONS, line, f"{path} is gone: remove its line"
