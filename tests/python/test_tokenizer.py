"""Our tokenizer against the official library, token for token: real files where they are, a generated tokenizer always."""

import json
import os
import pathlib
import random
import subprocess
import unicodedata

import pytest

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = pathlib.Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/bin/lockstep")).parent / "tokenize_probe"
DATA = pathlib.Path(os.environ.get("LOCKSTEP_TEST_DATA", ROOT.parent / "shared/data"))
REAL = DATA / "qwen2.5-tokenizer"
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tool_call>",
    "</tool_call>",
    "<|im_",
    "<|",
    "|>",
    "<<|im_end|>>",
]
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def probe(folder, mode, text):
    """The probe's output lines as lists of ids."""
    data = text if isinstance(text, bytes) else text.encode()
    done = subprocess.run([PROBE, str(folder), mode], input=data, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return [[int(i) for i in line.split()] for line in done.stdout.decode().splitlines()]


def assert_same(folder, reference, texts):
    ours = probe(folder, "lines", "\0".join(texts))
    assert len(ours) == len(texts)
    for text, ids, encoding in zip(texts, ours, reference.encode_batch_fast(texts, add_special_tokens=False)):
        expected = encoding.ids
        if ids != expected:
            at = next((i for i, (a, b) in enumerate(zip(ids, expected)) if a != b), min(len(ids), len(expected)))
            pytest.fail(
                f"{ascii(text[:300])}: id {at} is {ids[at : at + 5]}, expected {expected[at : at + 5]}, "
                f"after {ascii(reference.decode(expected[max(0, at - 4) : at + 3], skip_special_tokens=False))}"
            )


def stress_texts(seed, count=400):
    """Words, digits, blanks, marks and special tokens in an order nobody would write, from every plane."""
    rng = random.Random(seed)
    marks = [c for c in CODE_POINTS if unicodedata.combining(chr(c))]
    blanks = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
    words = "the of and Lorem ipsum naïve café façade straße ΑΒΓ привет 你好 こんにちは 안녕 नमस्ते مرحبا שלום".split()
    planes = [(0x20, 0x7F), (0xA0, 0x250), (0x250, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000)]
    planes += [(0x20000, 0x33000), (0xE0000, 0xE0200), (0xF0000, 0xF0100), (0x10FF00, 0x110000), (0x1F300, 0x1FB00)]
    contractions = ["'" + c for c in "s t re ve m ll d S T RE Ve vE M LL lL D \u017f RE' sS x".split()]

    def some():
        kind = rng.randrange(12)
        if kind == 0:
            return rng.choice(words) + rng.choice(["", " ", "'s", "."])
        if kind == 1:
            return "".join(rng.choice(blanks) for _ in range(rng.randint(1, 5)))
        if kind == 2:
            return "".join(rng.choice("0123456789٠१Ⅷ²½") for _ in range(rng.randint(1, 12)))
        if kind == 3:
            return rng.choice(["\r\n", "\n\n", "\r", " \n ", "\n  ", "  \r\n\t", " ", "   "])
        if kind == 4:
            return rng.choice(contractions)
        if kind == 5:
            return rng.choice(SPECIAL)
        if kind == 6:
            return rng.choice("aeiouAÅक가ᄀ각") + "".join(chr(rng.choice(marks)) for _ in range(rng.randint(1, 4)))
        if kind == 7:
            return rng.choice(
                ["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "e\u0301", "\u1100\u1161\u11a8", "\u0344", "\u212b", "ﬁ", "\u0958"]
            )
        if kind == 8:
            return "".join(chr(rng.randrange(0x21, 0x7F)) for _ in range(rng.randint(1, 10)))
        if kind == 9:
            return rng.choice(["=", "-", "a", " ", "ab", "ha", "。", "\n"]) * rng.randint(1, 90)
        first, last = rng.choice(planes)
        points = (rng.randrange(first, last) for _ in range(rng.randint(1, 6)))
        return "".join(chr(c) for c in points if not 0xD800 <= c < 0xE000)

    return ["".join(some() for _ in range(rng.randint(1, 60))).replace("\0", "") for _ in range(count)]


def small_tokenizer():
    """Byte symbols and a few hundred merges learnt from random syllables, with the official pipeline around them."""
    rng = random.Random(5)
    syllables = ["".join(rng.choice("abcdeé你好 ") for _ in range(rng.randint(1, 4))) for _ in range(60)]
    corpus = [" ".join(rng.choice(syllables) for _ in range(20)) for _ in range(200)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=700, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.add_special_tokens(SPECIAL[:3])
    plain = [tokenizers.AddedToken(t, special=False, normalized=False) for t in SPECIAL[3:5]]
    # Looked for in the normalised text: the decomposed spelling is found as well.
    tokenizer.add_tokens(plain + [tokenizers.AddedToken("café", special=False, normalized=True)])
    return tokenizer


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    tokenizer = small_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder, tokenizer


@pytest.fixture(scope="module")
def real():
    if not (REAL / "tokenizer.json").exists():
        pytest.skip(f"{REAL} is absent; set LOCKSTEP_TEST_DATA")
    return REAL, Tokenizer.from_file(str(REAL / "tokenizer.json"))


@pytest.fixture(params=["small", "real"])
def either(request):
    return request.getfixturevalue(request.param)


def test_every_code_point(either):
    """Alone, between letters, after a blank, after a mark, and before one that moves ahead of it."""
    texts = []
    # All of them where scripts are small, every fifth of the large uniform blocks, a few where there are no characters.
    large = [(0x3400, 0xA000), (0xAC00, 0xD800), (0x13460, 0x14400), (0x17000, 0x18D00), (0x20000, 0x33000)]
    some = [c for c in CODE_POINTS if 0 < c < 0x33000 and (c % 5 == 0 or not any(a < c < b for a, b in large))]
    some += [c for c in CODE_POINTS if 0xE0000 <= c < 0xE0200 or c >= 0x33000 and c % 251 == 0]
    for start in range(0, len(some), 97):
        group = [chr(c) for c in some[start : start + 97]]
        texts.append("".join(f"{c} a{c}b  {c}{c}\n" for c in group))
        texts.append("".join(f"a\u0316{c}\u0334\u0301 '{c}" for c in group))
    assert_same(*either, texts)


@pytest.mark.parametrize("seed", range(3))
def test_stress(either, seed):
    assert_same(*either, stress_texts(seed))


def test_fresh_stress(either):
    seed = random.SystemRandom().randrange(1 << 32)
    print("seed", seed)
    assert_same(*either, stress_texts(seed, 300))


def test_all_pairs_of_marks(small):
    """Composition and order of every mark over a few bases: the table of unicode_versions.h against the library."""
    marks = [chr(c) for c in CODE_POINTS if unicodedata.combining(chr(c))]
    texts = ["".join(base + m + other for m in marks) for base in "aक" for other in "\u0301\u0323\u0334\u093c\u3099"]
    texts.append("".join(chr(a) + chr(b) for a in range(0x1100, 0x1113) for b in range(0x1161, 0x1176)))
    assert_same(*small, texts)


def test_long_runs(either):
    """One piece of a megabyte, and marks in descending order: neither may take quadratic time."""
    rng = random.Random(1)
    word = "".join(rng.choice("abcdefgh") for _ in range(300_000))
    assert_same(*either, [word, "=" * 300_000, " " * 300_000, "\n" * 100_000, "1" * 100_000])
    assert_same(*either, ["a" + "\u0301\u0316" * 5_000])


def test_saved_forms_agree(small, tmp_path):
    """The same tokenizer as pairs, as "a b" strings, and as vocab.json with merges.txt."""
    folder, reference = small
    document = json.loads((folder / "tokenizer.json").read_text())
    pairs = [m.split(" ") if isinstance(m, str) else m for m in document["model"]["merges"]]
    texts = stress_texts(9, 60)

    for name, merges in (("pairs", pairs), ("strings", [" ".join(m) for m in pairs])):
        (tmp_path / name).mkdir()
        changed = document | {"model": document["model"] | {"merges": merges}}
        (tmp_path / name / "tokenizer.json").write_text(json.dumps(changed))
        assert_same(tmp_path / name, reference, texts)

    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "vocab.json").write_text(json.dumps(document["model"]["vocab"]))
    (plain / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(m) + "\n" for m in pairs))
    added = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in document["added_tokens"]}
    (plain / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    assert_same(plain, reference, texts)


def test_official_class_agrees(small, tmp_path):
    """Qwen2Tokenizer of transformers, which the official pipeline uses, on folders that it wrote itself."""
    transformers = pytest.importorskip("transformers")
    folder, _ = small
    official = transformers.Qwen2Tokenizer.from_pretrained(folder)
    official.save_pretrained(tmp_path)
    texts = stress_texts(11, 60)
    ours = probe(tmp_path, "lines", "\0".join(texts))
    for text, ids in zip(texts, ours):
        assert ids == official(text)["input_ids"], ascii(text[:200])


def test_prompt_template(real):
    """Template, truncation and drop as the official pipeline does them."""
    folder, reference = real
    template = (
        "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
        "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    )
    for prompt in ["", " ", "a cat", "{}", "<|im_end|>", "cat " * 2000, "é\u0301\n"]:
        expected = reference.encode(template.replace("{}", prompt)).ids[: 34 + 1024]
        assert probe(folder, "prompt", prompt) == [expected]


@pytest.mark.parametrize(
    "data, offset",
    [
        (b"\xff", 0),
        (b"ab\xc0\xafz", 2),
        (b"abcdefgh" * 9 + b"\xed\xa0\x80", 72),
        (b"caf\xc3", 3),
        (b"\xf4\x90\x80\x80", 0),
    ],
)
def test_not_utf8(small, data, offset):
    done = subprocess.run([PROBE, str(small[0]), "ids"], input=data, capture_output=True)
    assert done.returncode == 2
    assert f"not UTF-8 at byte {offset};" in done.stderr.decode()


def refused(folder, document):
    (folder / "tokenizer.json").write_text(json.dumps(document))
    done = subprocess.run([PROBE, str(folder), "ids"], input=b"x", capture_output=True)
    assert done.returncode != 0
    return done.stderr.decode()


@pytest.mark.parametrize(
    "path, value, words",
    [
        ("model.type", "Unigram", "model.type is not supported; expected BPE"),
        ("model.dropout", 0.1, "model.dropout is not supported"),
        ("model.unk_token", "<unk>", "model.unk_token is not supported"),
        ("model.end_of_word_suffix", "</w>", "model.end_of_word_suffix is not supported"),
        ("model.byte_fallback", True, "model.byte_fallback is not supported"),
        ("normalizer", {"type": "NFKC"}, "normalizer is not supported; expected NFC"),
        ("pre_tokenizer", {"type": "Metaspace"}, "pre_tokenizer is not supported"),
        ("pre_tokenizer.pretokenizers.0.pattern", {"Regex": "x"}, "pattern is not supported"),
        ("pre_tokenizer.pretokenizers.1.add_prefix_space", True, '"add_prefix_space": false'),
        (
            "post_processor",
            {"type": "TemplateProcessing", "single": [{"SpecialToken": {}}, {"Sequence": {}}]},
            "post_processor is not supported",
        ),
        ("added_tokens.0.lstrip", True, "added_tokens.0.lstrip is not supported"),
        ("model.merges", [["a", "\u4e00"]], 'merge 0 needs "\u4e00"'),
        ("model.merges", ["a"], "merge 0 is wrong"),
        ("model.vocab", {"a": 0, "b": 0}, "the id 0 belongs to two tokens"),
        ("model.vocab", {"a": 1 << 40}, 'the id of token "a" is out of range'),
        ("model.vocab", [], "model.vocab is wrong; expected an object"),
    ],
)
def test_refused_by_name(small, tmp_path, path, value, words):
    document = json.loads((small[0] / "tokenizer.json").read_text())
    at = document
    *parents, last = path.split(".")
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[last] = value
    assert words in refused(tmp_path, document)


def test_empty_folder(tmp_path):
    done = subprocess.run([PROBE, str(tmp_path), "ids"], input=b"x", capture_output=True)
    assert done.returncode == 2 and b"holds no tokenizer" in done.stderr


def test_bytes_without_token_vanish(tmp_path):
    """A vocabulary without all 256 bytes: the official library drops the others and merges across the gap."""
    document = json.loads(small_tokenizer().to_str())
    tokenizer = Tokenizer.from_str(json.dumps(document))
    vocab = {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ġa": 4, "Ġab": 5}
    document["model"] |= {"vocab": vocab, "merges": [["Ġ", "a"], ["a", "b"], ["Ġa", "b"]]}
    document["added_tokens"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert_same(tmp_path, tokenizer, ["ab", " ab", "acb", "xyz", " xab ab"])
    for ignore in (True, False):
        document["model"]["ignore_merges"] = ignore
        document["model"]["merges"] = [["Ġ", "a"], ["Ġa", "b"]]
        (tmp_path / "tokenizer.json").write_text(json.dumps(document))
        tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
        assert_same(tmp_path, tokenizer, ["ab", " ab", "abab", "a b ab"])
