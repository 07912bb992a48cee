#!/bin/sh
# The whole training in one go, from the root of the repository. OUT: where the weights go.
set -e
OUT=${OUT:-out}
python3 training/train_vae.py --minutes 6.5 --out "$OUT"
python3 training/train_dit.py --minutes 17 --out "$OUT"
