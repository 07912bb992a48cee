"""Planted faults in the official pipeline: right stage, right cause, and no false alarm on clean pairs."""

import runpy
import sys
from pathlib import Path

folder = Path(__file__).resolve().parent / "faults"
sys.path.insert(0, str(folder))
sys.argv[0] = str(folder / "run.py")
runpy.run_path(sys.argv[0], run_name="__main__")
