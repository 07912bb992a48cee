"""What a debug session costs, beside debugpy: start, latencies, calls, conditions, imports and forwards."""

import runpy
import sys
from pathlib import Path

folder = Path(__file__).resolve().parent / "debugger"
sys.path.insert(0, str(folder))
sys.argv[0] = str(folder / "run.py")
runpy.run_path(sys.argv[0], run_name="__main__")
