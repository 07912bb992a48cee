"""The debugger's part inside the debugged program. Loaded by bootstrap.py under a name of its own, not as a part of the
package `lockstep`, whose modules import more than a program may have imported."""
