"""Edits by the official pipeline on the CPU: the judge's verdict, and a contact sheet of befores and afters.

python training/edit_sample.py --model models/tiny-edit --out judged.json --part 0/4     # a quarter of the evaluation edits
python training/edit_sample.py --model models/tiny-edit --sheet docs/images/edit_sheet.png
"""

import argparse
import json
import os
import time

import numpy as np
import torch
from PIL import Image, ImageDraw

import edit_check
import edit_export
import edit_grammar


def edited(pipe, row, inputs, settings):
    return np.array(
        pipe(
            [Image.fromarray(i) for i in inputs],
            row["instruction"],
            negative_prompt=settings["negative_prompt"],
            true_cfg_scale=settings["guidance"],
            num_inference_steps=settings["steps"],
            height=inputs[0].shape[0],
            width=inputs[0].shape[1],
            generator=torch.Generator().manual_seed(row["seed"]),
        ).images[0]
    )


def wrapped(pen, text, width):
    """Lines of `text` that are at most so many pixels wide."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if pen.textlength(longer) <= width else [*lines, word]
    return "\n".join(lines)


def sheet(path, cells, columns=4, side=128):
    """cells: (inputs, output, instruction); each row of the sheet holds `columns` edits, input pictures left of the output."""
    width, caption = 2 * side + 6, 46  # two lines of text
    rows = [cells[k : k + columns] for k in range(0, len(cells), columns)]
    page = Image.new("RGB", (columns * (width + 14) + 14, len(rows) * (side + caption) + 14), (255, 255, 255))
    pen = ImageDraw.Draw(page)
    for y, line in enumerate(rows):
        for x, (inputs, output, text) in enumerate(line):
            left, top = 14 + x * (width + 14), 14 + y * (side + caption)
            if len(inputs) == 1:
                page.paste(Image.fromarray(inputs[0]), (left, top))
            else:  # two pictures share the place of one
                for k, picture in enumerate(inputs):
                    page.paste(
                        Image.fromarray(picture).resize((side // 2 - 2, side // 2 - 2), Image.LANCZOS),
                        (left + k * (side // 2 + 2), top + side // 4),
                    )
            page.paste(Image.fromarray(output), (left + side + 6, top))
            pen.rectangle((left - 1, top - 1, left + side, top + side), outline=(190, 190, 190))
            pen.rectangle((left + side + 5, top - 1, left + 2 * side + 6, top + side), outline=(190, 190, 190))
            pen.text((left, top + side + 5), wrapped(pen, text, width), fill=(40, 40, 40))
    page.save(path)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="models/tiny-edit")
    p.add_argument("--development", action="store_true", help="the development edits in place of the evaluation edits")
    p.add_argument("--part", default="0/1", help="k/n: every n-th edit from the k-th on")
    p.add_argument("--out", default="", help="verdicts as JSON")
    p.add_argument("--sheet", default="", help="draw a contact sheet of two edits of each kind")
    a = p.parse_args()
    with open(os.path.join(a.model, "lockstep.json")) as f:
        settings = json.load(f)
    rows = edit_grammar.development_edits() if a.development else edit_grammar.evaluation_edits()
    pipe = edit_export.pipeline(a.model)
    if a.sheet:
        rows = [rows[k] for k in [*range(16), *range(200, 204)]]
    else:
        k, n = map(int, a.part.split("/"))
        rows = rows[k::n]
    start, cells, verdicts = time.time(), [], []
    for row in rows:
        inputs = list(edit_check.draw(row["before"]))
        output = edited(pipe, row, inputs, settings)
        cells.append((inputs, output, row["instruction"]))
        verdicts.append(
            {
                "id": row["id"],
                "kind": row["kind"],
                "instruction": row["instruction"],
                **edit_check.judge(output, inputs, row),
            }
        )
    print(f"{(time.time() - start) / len(rows):.2f} s an edit")
    for v in verdicts:
        if not (v["changed"] and v["kept"]):
            print(v)
    if a.sheet:
        sheet(a.sheet, cells)
    if a.out:
        with open(a.out, "w") as f:
            json.dump(verdicts, f, indent=1)


if __name__ == "__main__":
    main()
