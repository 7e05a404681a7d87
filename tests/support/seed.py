"""The seed of a test that makes random choices: the same in every run of the gate, so that a change fails only for its
own faults. ESCROW_TEST_SEED=N gives another one, ESCROW_TEST_SEED=random draws one. The seed is printed. seed.h is the
same for C++.
"""
import os
import random

SEED_OF_THE_GATE = 13


def seed_of_this_run():
    given = os.environ.get('ESCROW_TEST_SEED', str(SEED_OF_THE_GATE))
    seed = random.randrange(1 << 30) if given == 'random' else int(given)
    print(f'ESCROW_TEST_SEED={seed}', flush=True)
    return seed
