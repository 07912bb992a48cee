"""Rewritten modules with and without one mistake: is its line named, and is a correct rewrite left alone?"""

import runpy
import sys
from pathlib import Path

folder = Path(__file__).resolve().parent / "zoom"
sys.path[0] = str(folder)  # benchmarks/mlx.py would stand for the package
sys.argv[0] = str(folder / "run.py")
runpy.run_path(sys.argv[0], run_name="__main__")
