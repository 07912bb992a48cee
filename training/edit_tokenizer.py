"""The tokenizer of the edit model: as tokenizer.py, trained on instructions and the edit template, whose prefix is 64 tokens (the official
pipeline drops exactly that many)."""

import os
import random

import numpy as np
from tokenizers import Tokenizer

import edit_grammar
import tokenizer

PATH = os.path.join(tokenizer.HERE, "edit_tokenizer", "tokenizer.json")
PREFIX = (
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, background), then explain how the user's "
    "text instruction should alter or modify the image. Generate a new image that meets the user's requirements while maintaining consistency "
    "with the original input where appropriate.<|im_end|>\n<|im_start|>user\n"
)
PREFIX_TOKENS = 64
PICTURE = "Picture {}: <|vision_start|><|image_pad|><|vision_end|>"


def train(path=PATH, merges=900):
    rng = random.Random(9)
    lines = []
    for i in range(40000):
        edit = edit_grammar.sample_two(rng) if i % 10 == 0 else edit_grammar.sample(rng)
        lines.append(" ".join(w for w in edit["instruction"].split(" ") if w.lower() == w))
    template = PREFIX + "\n" + tokenizer.SUFFIX + PICTURE.format(1) + PICTURE.format(2)
    for token in tokenizer.SPECIAL:
        template = template.replace(token, "\n")
    # "Generate" is more frequent without a blank, so that no token joins a blank to the capital G alone
    tok = tokenizer.train_on(lines + [template] * 3000 + ["Generate"] * 6000, path, merges)
    assert len(tok.encode(PREFIX).ids) == PREFIX_TOKENS, tok.encode(PREFIX).tokens
    assert len(tok.encode(tokenizer.SUFFIX).ids) == 5
    return tok


class Encoder(tokenizer.Encoder):
    """Instruction -> ids of everything behind the prefix: pictures, instruction, suffix."""

    def __init__(self, path=PATH):
        super().__init__(path)
        self.prefix = self.tok.encode(PREFIX).ids
        self.image = self.tok.token_to_id("<|image_pad|>")

    def pictures(self, counts):
        """Ids of the picture headers; counts: image tokens of each picture. Also the offset of each picture's first image token."""
        ids, starts = [], []
        for k, count in enumerate(counts):
            head = self.tok.encode(PICTURE.format(k + 1)).ids
            at = head.index(self.image)
            starts.append(len(ids) + at)
            ids += head[:at] + [self.image] * count + head[at + 1 :]
        return ids, starts


def initial_embedding(trained, path=PATH, trained_path=tokenizer.PATH):
    """[V,D] rows for this vocabulary from those of another: by token, else the mean of its pieces there."""
    import torch

    new, old = Tokenizer.from_file(path), Tokenizer.from_file(trained_path)
    rows = torch.zeros(new.get_vocab_size(), trained.shape[1])
    for token, i in new.get_vocab().items():
        j = old.token_to_id(token)
        pieces = [j] if j is not None else old.encode(new.decode([i], skip_special_tokens=False)).ids
        rows[i] = trained[pieces].float().mean(0) if pieces else trained.float().mean(0)
    return rows


if __name__ == "__main__":
    tok = train()
    e = Encoder()
    print("vocabulary", e.vocab_size, tok.encode(PREFIX).tokens, e.pictures([2, 1]))
    rng = random.Random(5)
    lengths = []
    for i in range(20000):
        c = (edit_grammar.sample_two(rng) if i % 10 == 0 else edit_grammar.sample(rng))["instruction"]
        ids = e.caption(c)
        lengths.append(len(ids))
        if i < 3000:
            assert ids == e.tok.encode(c + tokenizer.SUFFIX).ids, c
    print("lengths", np.percentile(lengths, [50, 90, 99, 99.9, 100]))
