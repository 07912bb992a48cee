#!/bin/sh
# The whole training in one go, from the root of the repository: about 23 minutes on an H200. OUT: where the weights go.
set -e
OUT=${OUT:-out}
python3 training/train_vae.py --minutes 6.5 --out "$OUT"
python3 training/train_dit.py --steps 16400 --out "$OUT"
python3 training/train_dit.py --steps 28200 --rich --init "$OUT" --lr 6e-4 --ema 0.9995 --shift 2 --captions 1600000 --other-share 0.08 \
  --judge 320 --out "$OUT"
