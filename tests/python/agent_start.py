"""The fixture `start`: a program under the debugger, in every Python found and without the extension."""

import pytest
from debug_client import Session, forms, program

_FORMS = forms()


@pytest.fixture(params=_FORMS.values(), ids=_FORMS)
def start(request, tmp_path):
    sessions = []

    def begin(text, *args, name="program.py", **more):
        path = program(tmp_path, text, name)
        session = Session(path, *args, cwd=tmp_path, **request.param, **more)
        session.script = path
        session.pure = "native" in request.param
        sessions.append(session)
        return session

    yield begin
    for session in sessions:
        session.close()


SUM = """
    import sys

    def work(n):
        total = 0
        for i in range(n):
            total += i
        return total

    a = work(5)
    b = work(6)
    print("done", a, b)
"""
