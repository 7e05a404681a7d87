"""What the tests of the Python client share: the client from the source tree, and the service of tests/escrowd."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [f'{ROOT}/tests/escrowd', f'{ROOT}/tests/support', f'{ROOT}/api/python']

# pylint: disable=wrong-import-position,unused-import
import escrow
from service import NOBODY, NOBODY_NAME, as_user, eventually, expect, expect_equal, fail, main


def raised(kind, action):
    """The exception of this class that the action raises."""
    try:
        result = action()
    except kind as error:
        return error
    return fail(f'{kind.__name__} was not raised; the result is {result!r}')
