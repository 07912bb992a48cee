"""Trains the tokenizer: byte-level BPE with Qwen's pre-tokenizer and special tokens, on captions and the prompt template.

Upper-case letters are never merged with each other, so that a word to be written reaches the text model letter by letter.
"""

import json
import os
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import grammar

HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "tokenizer", "tokenizer.json")
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PREFIX = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships of the objects "
    "and background:<|im_end|>\n<|im_start|>user\n"
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n"
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
PLAIN_ADDED = [
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
]


def train(path=PATH, merges=560):
    rng = random.Random(7)
    text = []
    for i in range(30000):
        caption = grammar.sample(rng)[0]
        text.append(" ".join(w for w in caption.split(" ") if w.lower() == w))
    template = PREFIX + "\n" + SUFFIX
    for token in SPECIAL:
        template = template.replace(token, "\n")
    text += [template] * 3000
    tok = train_on(text, path, merges)
    check(path)
    return tok


def train_on(text, path, merges):
    """Byte-level BPE on these lines, written to `path` with its config beside it."""
    tok = Tokenizer(models.BPE(byte_fallback=False))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merges,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=4,
    )
    tok.train_from_iterator(text, trainer)
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in PLAIN_ADDED])
    os.makedirs(os.path.dirname(path), exist_ok=True)
    tok.save(path)
    with open(os.path.join(os.path.dirname(path), "tokenizer_config.json"), "w") as f:
        json.dump(
            {
                "add_prefix_space": False,
                "clean_up_tokenization_spaces": False,
                "eos_token": "<|im_end|>",
                "errors": "replace",
                "model_max_length": 131072,
                "pad_token": "<|endoftext|>",
                "split_special_tokens": False,
                "tokenizer_class": "Qwen2Tokenizer",
                "unk_token": None,
                "bos_token": None,
                "additional_special_tokens": SPECIAL[1:],
            },
            f,
            indent=2,
        )
    return tok


def check(path=PATH):
    tok = Tokenizer.from_file(path)
    assert len(tok.encode(PREFIX).ids) == 34, tok.encode(PREFIX).tokens
    assert len(tok.encode(SUFFIX).ids) == 5, tok.encode(SUFFIX).tokens
    with open(path) as f:
        model = json.load(f)["model"]
    ids = model["vocab"]
    assert len({v for v in ids.values()}) == len(ids) and max(ids.values()) == len(ids) - 1
    for a, b in (m if isinstance(m, list) else m.split(" ") for m in model["merges"]):
        assert sum(c.isupper() and c.isascii() for c in a + b) <= 1, (a, b)
    for s in ("the word HI in red", "ÄÖ 日本語 🙂 \t x", "QWERTY 12"):
        assert tok.decode(tok.encode(s).ids) == s
    return tok


class Encoder:
    """Caption -> ids of caption plus suffix, with a cache of words (pieces between blanks are independent of each other)."""

    def __init__(self, path=PATH):
        self.tok = Tokenizer.from_file(path)
        self.prefix = self.tok.encode(PREFIX).ids
        self.suffix = self.tok.encode(SUFFIX).ids
        self.pad = self.tok.token_to_id("<|endoftext|>")
        self.cache = {}

    @property
    def vocab_size(self):
        return self.tok.get_vocab_size()

    def piece(self, text):
        ids = self.cache.get(text)
        if ids is None:
            ids = self.tok.encode(text).ids
            if len(self.cache) < 200000:
                self.cache[text] = ids
        return ids

    def caption(self, text):
        if not text.strip():
            return self.tok.encode(text).ids + self.suffix
        words = text.split(" ")
        ids = list(self.piece(words[0]))
        for word in words[1:]:
            ids += self.piece(" " + word)
        return ids + self.suffix


if __name__ == "__main__":
    tok = train()
    print("vocab", tok.get_vocab_size(), "prefix", tok.encode(PREFIX).tokens)
    e = Encoder()
    rng, longest = random.Random(5), 0
    import time

    start = time.time()
    for i in range(20000):
        c = grammar.sample(rng)[0]
        ids = e.caption(c)
        longest = max(longest, len(ids))
        if i < 2000:
            assert ids == e.tok.encode(c + SUFFIX).ids, c
        if i < 5:
            print(c, e.tok.encode(c).tokens)
    print("longest", longest, "per s", 20000 / (time.time() - start))
