"""Takes the recorder's own frames out of the tracebacks of the program it runs in."""

import os
import sys
import threading

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _is_ours(entry):
    return entry.tb_frame.f_code.co_filename.startswith(_OURS)


def without_our_frames(traceback):
    """The same traceback, its entries linked past those of this package."""
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    entry = traceback
    while entry is not None:
        following = entry.tb_next
        while following is not None and _is_ours(following):
            following = following.tb_next
        if following is not entry.tb_next:
            entry.tb_next = following
        entry = following
    return traceback


def _clean(error):
    """The exception and those that led to it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = without_our_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def install():
    """For exceptions that nobody catches: the frames through which they left our code are only there at the very end."""
    show, show_in_thread = sys.excepthook, threading.excepthook

    def excepthook(kind, error, traceback):
        _clean(error)
        show(kind, error, without_our_frames(traceback))

    def thread_excepthook(arguments):
        _clean(arguments.exc_value)
        show_in_thread(
            threading.ExceptHookArgs(
                (arguments.exc_type, arguments.exc_value, without_our_frames(arguments.exc_traceback), arguments.thread)
            )
        )

    sys.excepthook, threading.excepthook = excepthook, thread_excepthook
