"""Real ports from PyPI against what they port: right stage, right cause, clean where clean."""

import runpy
import sys
from pathlib import Path

folder = Path(__file__).resolve().parent / "ports"
sys.path.insert(0, str(folder))
sys.argv[0] = str(folder / "run.py")
runpy.run_path(sys.argv[0], run_name="__main__")
