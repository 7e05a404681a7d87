#!/usr/bin/env python3
"""Ignores the error of each sync of the source, and leaves each sync out, one at a time; a test has to notice.

  sync_mutants.py [--source DIR] [--work DIR [--again]] [--only TEXT...] [--jobs N] [--check]

The sites are found in the source, and sync_sites.py says of each which tests notice, or why none needs to. All mutants
are in one build of a copy: ESCROW_SYNC_MUTANT chooses one when a test runs. Exit status 1 names those that no test
noticed. With --check only the table is compared with the source: a site that it does not know, or one that is gone, is
an error.
"""
import argparse
import collections
import concurrent.futures
import os
import re
import shutil
import sys
import tempfile

from mutants import Laboratory, Stale, write
from sync_sites import SITES, TESTS, Exempt

FOLDERS = ('session', 'storage', 'daemon')
# The calls of the system, SQLite's, and ours that do nothing but sync.
SITE = re.compile(r'::(?:fsync|fdatasync|syncfs|sync_file_range)\(|file->pMethods->xSync\(|'
                  r'(?:\(\*guard\)->)?(?:\w+(?:\(\))?(?:\.|->))*execute\((?:kSynced\b|"PRAGMA synchronous = FULL")|'
                  r'(?<![\w:.>])(?:sync_directory|sync_data|sync_file|sync_repository|sync_names_of|sync_names_above|'
                  r'sync_removed_references|sync_log|sync_pack|flush)\(|'
                  r'Reflog::sync_names\(|(?:\(\*guard\)->|\w+(?:\(\))?(?:\.|->))+'
                  r'(?:sync|sync_all|sync_files|barrier|sync_directory|sync_file|sync_main_file|flush)\(')
DEFINED = re.compile(r'^\s*(?:void|bool) (?:\w+::)*$')
PREAMBLE = '''#include <cstdlib>
#include <string>
#include <type_traits>
namespace {
// 'd': it is not called; 'i': its error is nobody's.
[[maybe_unused]] char sync_mutant_is(const char* site) {
  const char* const chosen = std::getenv("ESCROW_SYNC_MUTANT");
  return chosen != nullptr && std::string(chosen + 2) == site ? chosen[0] : ' ';
}
template <typename Call>
[[maybe_unused]] auto sync_mutant(const char* site, Call call) -> decltype(call()) {
  using Result = decltype(call());
  const char way = sync_mutant_is(site);
  if constexpr (std::is_void_v<Result>) {
    if (way == 'd') return;
    if (way != 'i') return call();
    try { call(); } catch (...) {}
  } else {
    const Result done = static_cast<Result>(std::is_same_v<Result, bool> ? 1 : 0);
    if (way == 'd') return done;
    if (way != 'i') return call();
    try { call(); } catch (...) {}
    return done;
  }
}
}
'''


def end_of_call(text, at):
    depth = 0
    for place in range(at, len(text)):
        depth += {'(': 1, ')': -1}.get(text[place], 0)
        if depth == 0 and text[place] == ')':
            return place + 1
    raise Stale('a parenthesis that is not closed')


def sites_in(name, text):
    """(key, begin, end) of each call that syncs."""
    seen, found = collections.Counter(), []
    for match in SITE.finditer(text):
        line = text[text.rfind('\n', 0, match.start()) + 1:match.start()]
        end = end_of_call(text, text.rindex('(', match.start(), match.end()))
        call = ' '.join(text[match.start():end].split())
        if '//' in line or '"' in line.replace('"PRAGMA', '') or DEFINED.match(line):
            continue
        if re.search(r'(?:^|[>.])flush\(', call) and not call.endswith('flush(true)'):
            continue
        seen[call] += 1
        key = f'{name}: {call}' + (f' ({seen[call]})' if seen[call] > 1 else '')
        found.append((key, match.start(), end))
    return found


def sources(top):
    for folder in FOLDERS:
        for directory, _, names in sorted(os.walk(os.path.join(top, folder))):
            for name in sorted(names):
                if name.endswith('.cc'):
                    path = os.path.join(directory, name)
                    with open(path, encoding='utf-8') as file:
                        yield path, os.path.relpath(path, top), file.read()


def instrument(top):
    for path, name, text in sources(top):
        found = sites_in(name, text)
        for key, begin, end in reversed(found):
            quoted = key.replace('\\', '\\\\').replace('"', '\\"')
            text = f'{text[:begin]}sync_mutant("{quoted}", [&] {{ return {text[begin:end]}; }}){text[end:]}'
        if found:
            write(path, PREAMBLE + text)


def check_sites(top):
    known = [key for _, name, text in sources(top) for key, _, _ in sites_in(name, text)]
    wrong = [f'{key}: a sync that sync_sites.py does not know' for key in known if key not in SITES]
    wrong += [f'{key}: it is gone from the source' for key in SITES if key not in known]
    print('\n'.join(wrong) or f'{len(known)} sites of syncs are known')
    return 1 if wrong else 0


def mutants(only):
    for key, (ignored, dropped) in SITES.items():
        for way, tests in (('ignored', ignored), ('dropped', dropped)):
            if not isinstance(tests, Exempt) and (not only or any(text in key for text in only)):
                yield f'{way[0]}:{key}', tests


def build(options, work, tests):
    laboratory = Laboratory(os.path.abspath(options.source), work, TESTS)
    instrument(laboratory.copy)
    laboratory.configure()
    laboratory.make(tests)
    for test in tests:
        if said := laboratory.test(test):
            raise Stale(f'{test} fails without any mutant: {said}')
    return laboratory


def caught_by(laboratory, name, tests):
    """The first that noticed; None: none did."""
    return name, next((test for test in tests if laboratory.test(test, ESCROW_SYNC_MUTANT=name)), None)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--source', default=os.path.dirname(os.path.dirname(here)), help='the source tree to copy')
    parser.add_argument('--work', help='where to copy and build (default: a temporary directory, removed afterwards)')
    parser.add_argument('--only', nargs='+', metavar='TEXT', help='sites whose file and call have this text in them')
    parser.add_argument('--jobs', type=int, default=2, help='mutants at a time')
    parser.add_argument('--again', action='store_true', help='with what --work has built and seen pass')
    parser.add_argument('--check', action='store_true', help='only compare the table with the source')
    options = parser.parse_args()
    if options.check:
        return check_sites(options.source)
    work = os.path.abspath(options.work or tempfile.mkdtemp(prefix='escrow-mutants-'))
    missed, chosen = [], list(mutants(options.only))
    try:
        if options.again:
            laboratory = Laboratory(None, work, TESTS)
        else:
            laboratory = build(options, work, sorted({test for _, tests in chosen for test in tests}))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for name, test in pool.map(lambda mutant: caught_by(laboratory, *mutant), chosen):
                missed += [] if test else [name]
                print(f'{name}: {"caught by " + test if test else "NOT CAUGHT"}', flush=True)
    except Stale as error:
        print(error)
        return 1
    finally:
        if not options.work:
            shutil.rmtree(work, ignore_errors=True)
    print('\n'.join([f'{len(chosen) - len(missed)} of {len(chosen)} mutants were caught',
                     *(f'not: {name}' for name in missed)]))
    return 1 if missed else 0


if __name__ == '__main__':
    sys.exit(main())
