"""Faults planted in the official pipeline: is the planted line among those that zoom names?"""

import runpy
import sys
from pathlib import Path

folder = Path(__file__).resolve().parent / "zoom"
sys.path[0] = str(folder)  # benchmarks/mlx.py would stand for the package
sys.argv[0] = str(folder / "faults.py")
runpy.run_path(sys.argv[0], run_name="__main__")
