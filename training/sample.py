"""A contact sheet by the official pipeline on the CPU, and the quick judge's verdict on development prompts.

python training/sample.py --model models/tiny --out sheet.png [--judge 40]
"""

import argparse
import time

import numpy as np
import torch
from diffusers import QwenImagePipeline

import check
import export
import grammar
import scenes
from train_dit import SHEET


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="models/tiny")
    p.add_argument("--out", default="sheet.png")
    p.add_argument("--prompts", nargs="*", default=SHEET)
    p.add_argument("--size", type=int, nargs=2, default=(128, 128), help="height width")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--guidance", type=float, default=export.GUIDANCE)
    p.add_argument("--judge", type=int, default=0)
    a = p.parse_args()
    pipe = QwenImagePipeline.from_pretrained(a.model, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)

    def draw(prompt, seed):
        return np.array(
            pipe(
                prompt,
                negative_prompt=" ",
                true_cfg_scale=a.guidance,
                num_inference_steps=a.steps,
                height=a.size[0],
                width=a.size[1],
                generator=torch.Generator().manual_seed(seed),
            ).images[0]
        )

    if a.judge:
        rows = grammar.development_prompts(a.judge)
        prompts, seeds = [r["prompt"] for r in rows], [r["seed"] for r in rows]
    else:
        prompts, seeds = a.prompts, range(len(a.prompts))
    start = time.time()
    images = np.stack([draw(q, s) for q, s in zip(prompts, seeds)])
    print(f"{(time.time() - start) / len(images):.2f} s a picture")
    sheet = scenes.contact_sheet(torch.from_numpy(images).permute(0, 3, 1, 2) / 127.5 - 1, 8)
    scenes.write_png(a.out, sheet)
    if a.judge:
        totals, bad = check.report(images, rows)
        print({k: f"{r}/{n}" for k, (r, n) in totals.items()})
        for i, why in bad:
            print(why, rows[i]["prompt"])


if __name__ == "__main__":
    main()
