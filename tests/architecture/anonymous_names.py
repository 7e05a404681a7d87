"""The rule that lets the sources of a target be compiled as one (ESCROW_UNITY); check_sources.py runs it.

The unnamed namespaces of two sources are then one, so no two sources of a target may define the same name in theirs: a
constant, a variable, a type, or a function with the same types of parameters. Aliases may be repeated.
"""
import re

from targets import targets

LITERAL = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|//[^\n]*', re.DOTALL)
CONSTANT = re.compile(r"\b(k[A-Z]\w*)\s*(?:\[\w*\])?\s*[={]")
VARIABLE = re.compile(r"(?:^|\n)(?!using |typedef |namespace |struct |class |enum |union )"
                      r"[\w:<>,*& ]+[ &*](\w+)(?:\{\}|\s*=[^;]*)?;")
TYPE = re.compile(r"\b(?:struct|class|enum class|enum)\s+(\w+)\s*(?:final)?\s*(?::[^{;]*)?\{")
FUNCTION = re.compile(r"(?:^|\n)(?:\[\[\w+\]\] )?(?:template <[^>]*>\s*)?[\w:<>,&* ]+?[ &*](\w+)"
                      r"\(((?:[^()]|\([^()]*\))*)\)\s*(?:noexcept|const|->[^{]*)?\s*\{")


def unnamed(text):
    """What the unnamed namespaces of a source hold, every body reduced to {}; lines are kept."""
    text = LITERAL.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    kept, depth = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        if depth == 0:
            depth = 1 if line.startswith("namespace {") else 0
            continue
        held = ""
        for letter in line:
            depth -= letter == "}"
            if depth == 0:
                break
            if depth == 1:
                held += letter
            depth += letter == "{"
        kept.append((number, held))
    return kept


def names_of(text):
    """{name: line} of what the unnamed namespaces of a source define."""
    lines = unnamed(text)
    whole = "\n".join(line for _, line in lines)
    starts, at = [], 0
    for number, line in lines:
        starts.append((at, number))
        at += len(line) + 1
    found = {}
    for pattern in (CONSTANT, VARIABLE, TYPE, FUNCTION):
        for match in pattern.finditer(whole):
            name = match.group(1)
            if pattern is FUNCTION:
                name += f"({', '.join(map(type_of, match.group(2).split(',')))})"
            line = max(entry for entry in starts if entry[0] <= match.start(1))[1]
            found.setdefault(name, line)
    return found


def type_of(parameter):
    """`const std::string& path = {}` without its name."""
    words = " ".join(parameter.split("=")[0].split())
    return re.sub(r"(?<=[ &*>])\w+$", "", words).strip()


def anonymous_names(sources):
    """No two sources of a target define the same name in unnamed namespaces."""
    for listing, text in sources.having("CMakeLists.txt"):
        for target, paths in targets(listing, text, sources.text):
            first = {}
            for path in paths:
                for name, line in names_of(sources.text[path]).items():
                    if name in first:
                        yield path, line, f"{name} stands in {first[name]} too, and {target} is compiled as one source"
                    else:
                        first[name] = path
