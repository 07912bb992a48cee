"""What holds for every test of this folder."""

import signal

import pytest
from debug_service import Home

# A shell that starts the tests in the background has them ignore SIGINT, and so would every program they start and
# interrupt. A handler of our own is reset to the default in those.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def home(tmp_path):
    """A home folder whose service, sessions and clients end with the test."""
    made = Home(tmp_path)
    yield made
    made.close()
