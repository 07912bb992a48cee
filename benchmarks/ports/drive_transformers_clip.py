"""The reference of CLIP: transformers compares two pictures of noise with three texts of random tokens."""

from __future__ import annotations

from driving import reference_parser

START, END = 118, 119


def pictures(size: int = 40):
    import numpy as np

    return np.random.default_rng(5).standard_normal((2, 3, size, size)).astype(np.float32)


def texts(length: int = 20):
    """Start, words, end, and nothing behind it."""
    import numpy as np

    words = np.random.default_rng(6).integers(1, START, (3, length))
    ids = np.zeros((3, length), np.int64)
    for row, count in enumerate((17, 9, 4)):
        ids[row, : count + 2] = [START, *words[row, :count], END]
    return ids


def main():
    options = reference_parser(__doc__).parse_args()

    import torch
    from transformers import CLIPModel

    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[options.dtype]
    model = CLIPModel.from_pretrained(options.model, dtype=dtype, local_files_only=True).eval()
    with torch.no_grad():
        result = model(input_ids=torch.from_numpy(texts()), pixel_values=torch.from_numpy(pictures()).to(dtype))
    print(result.logits_per_image)


if __name__ == "__main__":
    main()
