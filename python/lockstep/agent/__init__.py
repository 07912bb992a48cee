"""The debugger's part inside the debugged program. Loaded by bootstrap.py under a name of its own, not as a part of the
package `lockstep`, whose modules import more than a program may have imported."""

on_package = None  # told of the package `lockstep` when the program imports it


def package_imported(package):
    if on_package is not None:
        on_package(package)
