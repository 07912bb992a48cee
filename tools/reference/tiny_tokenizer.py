"""A small byte-level BPE tokenizer with Qwen's rules, trained on the text below.

The real vocabulary has 151,643 entries; a golden that carried it would be mostly vocabulary. This one has the same
parts (NFC, Qwen's pre-tokenizer pattern, 256 byte symbols, merges, the 22 added tokens) at a hundredth of the size.
The prompt template is in the training text, so its prefix is 34 tokens long, as with the real vocabulary.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from pathlib import Path

import regex

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# (text, special): the last eight are "added" but not "special" in Qwen's own files, and split out all the same.
ADDED_TOKENS = [
    ("<|endoftext|>", True),
    ("<|im_start|>", True),
    ("<|im_end|>", True),
    ("<|object_ref_start|>", True),
    ("<|object_ref_end|>", True),
    ("<|box_start|>", True),
    ("<|box_end|>", True),
    ("<|quad_start|>", True),
    ("<|quad_end|>", True),
    ("<|vision_start|>", True),
    ("<|vision_end|>", True),
    ("<|vision_pad|>", True),
    ("<|image_pad|>", True),
    ("<|video_pad|>", True),
    ("<tool_call>", False),
    ("</tool_call>", False),
    ("<|fim_prefix|>", False),
    ("<|fim_middle|>", False),
    ("<|fim_suffix|>", False),
    ("<|fim_pad|>", False),
    ("<|repo_name|>", False),
    ("<|file_sep|>", False),
]

# Weight of the template's words: high enough that every one of them becomes a single token.
TEMPLATE_WEIGHT = 1000
TEMPLATE_TEXT = (
    "system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial relationships "
    "of the objects and background:\nuser\nassistant\n"
)
SAMPLE_TEXT = """
A small red fox sleeps under a tall tree beside the river. The light of the morning falls on the water, and the water
throws it back against the stones. A cat holding a sign that says hello world. A photo of a house on a hill, a drawing of
a ship in a storm, a painting of the sea at night with the moon above the clouds. Two children run along the beach; their
dog runs faster. In the kitchen there is bread, butter, a jug of milk and a bowl with apples and pears. Blue, green,
yellow, black and white tiles cover the floor. It's late, they're tired, we'll go home, I'd stay, she's here, don't ask.
12 eggs, 365 days, 1024 x 768 pixels, 3.14159 and 2.71828. Low quality, blurry, distorted, watermark, cropped.
Ultra HD, 4K, cinematic composition, sharp focus, soft shadows, wide angle, close-up portrait of an old man.
一只小猫坐在窗台上看雨。红色的房子，蓝色的天空，绿色的山。你好，世界！通义千问。低分辨率，低画质。
Ein kleines Haus über dem Fluß. Un café près de la forêt, où l'été dure longtemps. Привет, мир. こんにちは世界。
"""


def byte_symbols() -> list[str]:
    """GPT-2's printable stand-in for each byte value."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(printable))
    return [table[byte] for byte in range(256)]


def _words(text: str, weight: int, counts: Counter) -> None:
    symbols = byte_symbols()
    for piece in regex.findall(PATTERN, unicodedata.normalize("NFC", text)):
        counts[tuple(symbols[byte] for byte in piece.encode("utf-8"))] += weight


def train(merge_count: int) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Plain BPE training: the most frequent pair first, ties by the pair itself, so the result never varies."""
    counts: Counter = Counter()
    _words(TEMPLATE_TEXT, TEMPLATE_WEIGHT, counts)
    _words(SAMPLE_TEXT, 1, counts)
    # GPT-2 order: the printable bytes first, then the shifted ones.
    vocab = {symbol: index for index, symbol in enumerate(sorted(byte_symbols()))}
    merges: list[tuple[str, str]] = []
    words = dict(counts)
    while len(merges) < merge_count:
        pairs: Counter = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        vocab.setdefault("".join(best), len(vocab))
        words = {_apply(word, best): count for word, count in words.items()}
    return vocab, merges


def _apply(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    i = 0
    while i < len(word):
        if i + 1 < len(word) and (word[i], word[i + 1]) == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def make_tokenizer(merge_count: int = 500):
    """The tokenizer as the official class. Its vocabulary has 256 + merge_count + 22 entries."""
    from transformers import AddedToken, Qwen2Tokenizer

    vocab, merges = train(merge_count)
    tokenizer = Qwen2Tokenizer(
        vocab=vocab, merges=merges, pad_token="<|endoftext|>", eos_token="<|im_end|>", model_max_length=131072
    )
    tokens = [AddedToken(text, special=special, normalized=False) for text, special in ADDED_TOKENS]
    # One call each keeps the ids in this order: eos and pad are already known to the class, under some other id.
    _renumber(tokenizer, tokens, len(vocab))
    return tokenizer


def _renumber(tokenizer, tokens, first_id: int) -> None:
    """Puts the added tokens at first_id.. in the order given, whatever the class added on its own."""
    from tokenizers import Tokenizer

    document = json.loads(tokenizer._tokenizer.to_str())
    document["added_tokens"] = [
        {
            "id": first_id + index,
            "content": token.content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": token.special,
        }
        for index, token in enumerate(tokens)
    ]
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(document))


def save_vocab_files(tokenizer_dir: Path) -> None:
    """Writes vocab.json and merges.txt beside tokenizer.json, as the original repositories do."""
    document = json.loads((tokenizer_dir / "tokenizer.json").read_text("utf-8"))
    vocab = dict(sorted(document["model"]["vocab"].items(), key=lambda item: item[1]))
    (tokenizer_dir / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), "utf-8")
    merges = [m if isinstance(m, str) else " ".join(m) for m in document["model"]["merges"]]
    (tokenizer_dir / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", "utf-8")
