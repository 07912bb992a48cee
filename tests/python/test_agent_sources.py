"""Which files are the program's own, and which belong to libraries."""

import os
import sys

import pytest
from debug_client import ROOT

sys.path.insert(0, str(ROOT / "python"))
from lockstep.agent import sources  # noqa: E402


@pytest.fixture
def standard_library(tmp_path, monkeypatch):
    """A standard library that holds a link to a file elsewhere, as Debian's does for sitecustomize.py."""
    lib, etc = tmp_path / "lib" / "python3", tmp_path / "etc"
    lib.mkdir(parents=True)
    etc.mkdir()
    (etc / "sitecustomize.py").write_text("")
    (lib / "sitecustomize.py").symlink_to(etc / "sitecustomize.py")
    monkeypatch.setattr(os, "__file__", str(lib / "os.py"))
    monkeypatch.setattr(sources, "_libraries", None)
    yield lib
    sources._libraries = None


def test_a_link_in_the_standard_library_is_no_file_of_the_program(standard_library):
    linked = str(standard_library / "sitecustomize.py")
    assert sources.is_library(linked) and sources.is_standard(linked)


def test_an_installed_package_is_a_library_but_not_standard(standard_library):
    installed = str(standard_library / "site-packages" / "torch" / "nn.py")
    assert sources.is_library(installed) and not sources.is_standard(installed)


def test_a_file_of_the_program_is_neither(standard_library, tmp_path):
    own = str(tmp_path / "main.py")
    assert not sources.is_library(own) and not sources.is_standard(own)
