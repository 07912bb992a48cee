"""Every sentence of an answer, held against the two runs: what `compare --json` claims is computed again with NumPy.

    python truth.py REFERENCE CANDIDATE ANSWER.json      prints what is not true; exit 1 if anything is not

A claim is checked where the data decide it. What a cause says of the code is the score's business (`run.py`); what it says in
numbers (a factor, a share that is left) is checked here.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import numpy as np

KEY = ("name", "step", "hit", "role")


class Run:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.records = [json.loads(line) for line in (self.folder / "records.jsonl").read_text().splitlines()]
        self.by_key = {}
        for record in self.records:
            self.by_key.setdefault(key_of(record), record)

    def values(self, record):
        if not record.get("file"):
            return None
        path = self.folder / record["file"]
        if not path.exists():
            return None
        raw = np.load(path)
        if record["dtype"] == "bf16":
            raw = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return raw.reshape(record["shape"])


def key_of(one):
    step = one.get("step")
    return (
        one["name"],
        -1 if step is None else step,
        one.get("hit", 0),
        one.get("role", "output"),
        tuple(sorted((one.get("tags") or {}).items())),
    )


def number(value):
    return (
        float(value)
        if not isinstance(value, str)
        else {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}[value]
    )


def near(a, b, rel=1e-3, absolute=1e-12):
    return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= rel * max(abs(a), abs(b)) + absolute


def error_of(reference, candidate):
    r, c = np.asarray(reference, np.float64).ravel(), np.asarray(candidate, np.float64).ravel()
    norm = np.linalg.norm(r)
    apart = np.linalg.norm(c - r)
    return {
        "relative": apart / norm if norm else (math.inf if apart else 0.0),
        "max_abs": float(np.max(np.abs(c - r))) if r.size else 0.0,
        "rms_reference": norm / math.sqrt(max(r.size, 1)),
        "rms_candidate": float(np.linalg.norm(c)) / math.sqrt(max(c.size, 1)),
    }


def false_sentences(reference_folder, candidate_folder, answer) -> list[str]:
    reference, candidate = Run(reference_folder), Run(candidate_folder)
    wrong = []
    tensors = answer.get("tensors", [])
    by_key = {key_of(one): one for one in tensors}
    states = [one["state"] for one in tensors]
    bad = [one for one in tensors if one["state"] in ("mismatch", "incomparable")]
    factor = answer.get("noise", {}).get("factor", 6)

    def claim(true, words):
        if not true:
            wrong.append(words)

    # The verdict, and what stands beside it.
    verdict = answer["verdict"]
    claim((verdict == "mismatch") == bool(bad), f"verdict {verdict} with {len(bad)} tensors that differ")
    claim(verdict != "match" or not answer.get("causes"), "a cause beside a match")
    claim(
        (answer.get("first_divergence") is not None) == bool(bad),
        "a first divergence without a difference, or none with one",
    )
    coverage = answer.get("coverage", {})
    claim(coverage.get("paired", 0) <= coverage.get("of", 0), f"coverage of {coverage}")
    claim(answer["compared"] <= len(tensors), f"{answer['compared']} compared of {len(tensors)} pairs")

    # Each pair's numbers.
    for one in tensors:
        label = f"{one['role']}:{one['name']}"
        r = reference.by_key.get(key_of(one))
        c = candidate.by_key.get(key_of(one["partner"]))
        claim(r is not None, f"{label} is no tensor of the reference")
        claim(c is not None, f"{one['partner']['name']} is no tensor of the candidate")
        if r is None or c is None:
            continue
        x, y = reference.values(r), candidate.values(c)
        if one["state"] == "unread":
            claim(x is None or y is None, f"{label}: 'not kept', and both files are there")
            continue
        if x is None or y is None or one["state"] == "incomparable":
            continue
        stated = {name: number(value) for name, value in one["error"].items() if not isinstance(value, (bool, dict))}
        floors = number(one["in_floors"])
        said = "a tensor that agrees" if one["state"] in ("match", "layout") else "a difference"
        if one["state"] == "mismatch":
            claim(not one["error"]["identical"], f"{label}: {said}, identical")
            note = one.get("note", "")
            claim(
                floors > factor
                or "made here" in note
                or stated["worst_slice"] > 0
                or "the very same numbers" in note
                and _was_given_the_same(tensors, one),
                f"{label}: {said} at {floors:.3g} floors",
            )
        if (
            x.size == y.size
            and x.shape == y.shape
            and one["state"] != "layout"
            and np.isfinite(x).all()
            and np.isfinite(y).all()
        ):
            made = error_of(x, y)
            for name in ("relative", "max_abs", "rms_reference", "rms_candidate"):
                if one["error"]["identical"]:
                    claim(np.array_equal(x, y), f"{label}: 'identical', and it is not")
                    break
                claim(
                    near(stated[name], made[name], 1e-3, 1e-9),
                    f"{label}: {name} {stated[name]:.6g}, computed {made[name]:.6g}",
                )

    # The first divergence is bad, and what it was made from is good.
    first = answer.get("first_divergence")
    if first:
        own = by_key.get(key_of(first))
        claim(
            own is not None and own["state"] in ("mismatch", "incomparable"),
            "the first divergence is a tensor that agrees",
        )
        if own is not None:
            before = [one for one in bad if tensors.index(one) < tensors.index(own)]
            notes = " ".join(answer["notes"])
            for one in before:
                claim(one["name"] in notes or one["partner"] != own["partner"] and tensors.index(own) > tensors.index(one) and _is_given_later(tensors, one, own),
                      f"{one['role']}:{one['name']} differs before the first divergence, and nothing is said of it")  # fmt: skip
        for name in first["good_inputs"] + first["between"]["starts"]:
            role = "input" if name.startswith("input ") else None
            plain = name.removeprefix("input ")
            same = [
                one
                for one in tensors
                if one["name"] == plain
                and (role is None or one["role"] == role)
                and one["step"] == first["step"]
                and one["tags"] == first["tags"]
            ]
            if same and own is not None:
                claim(
                    any(
                        one["state"] in ("match", "layout", "unread") or tensors.index(one) > tensors.index(own)
                        for one in same
                    ),
                    f"good: {name}, which differs",
                )
        for side, run in (("reference", reference), ("candidate", candidate)):
            key = key_of(first) if side == "reference" else key_of(own["partner"]) if own else None
            record = run.by_key.get(key)
            if record:
                claim(
                    list(record["shape"]) == first["shape"][side],
                    f"shape of the {side}: {first['shape'][side]}, recorded {record['shape']}",
                )

    # Growth accuses only where the first divergence is.
    words = answer.get("growth", {}).get("words", "")
    claim(
        "bug" not in words or (first is not None and first["name"] in words) or first is not None,
        f"growth: {words!r} beside {verdict}",
    )
    claim(verdict == "mismatch" or "bug" not in words, f"growth: {words!r} beside {verdict}")

    # Counts in notes.
    for note in answer.get("notes", []):
        if found := re.match(r"(\d+) tensors? of (the reference|yours) ha(?:s|ve) no partner, (\d+) names?", note):
            side = "reference" if found[2] == "the reference" else "candidate"
            unpaired = answer["unpaired"][side]
            claim(int(found[1]) == len(unpaired), f"{note!r}: {len(unpaired)} have none")
            claim(int(found[3]) == len({one["name"] for one in unpaired}), f"{note!r}: other names")
        if "not kept" in note and (found := re.match(r"(\d+) pairs? w", note)):
            claim(int(found[1]) == states.count("unread"), f"{note!r}: {states.count('unread')} were unread")
        if note.endswith("harmless"):
            name = note.split(":")[0].split(" @")[0].split(" #")[0]
            claim(
                any(one["name"] == name and one["state"] == "match" for one in tensors),
                f"{note!r}: it is no tensor that agrees",
            )
            if found := re.search(r": ([\d.e+-]+) floors, a little beyond", note):
                claim(float(found[1]) > factor, f"{note!r}: that is within its limit")

    # Causes: numbers that mean nothing, and what they say is left.
    for cause in answer.get("causes", []):
        text = cause["explanation"] + "; " + cause["fix"]
        for trivial in (
            r"\b1(?:\.0+)? \* y\b",
            r"\btimes 1(?:\.0+)?\b(?!\s*[/+\-])",
            r"\b1(?:\.0+)? times\b",
            r"\bdivide by 1\b(?!\.)",
        ):
            claim(not re.search(trivial, text), f"{cause['cause']}: a factor of 1: {text!r}")
        left = number(cause["residual"])
        claim(left >= 0 and not math.isnan(left), f"{cause['cause']}: leaves {left}")
        if first and first["state"] if "state" in (first or {}) else first:
            whole = number(first["error"]["relative"])
            claim(
                not math.isfinite(whole) or left <= max(whole, 1.0) * 1.001,
                f"{cause['cause']}: leaves {left:.3g} of an error of {whole:.3g}",
            )
        if cause["cause"] == "affine.scale" and first and (found := re.search(r"yours: (-?[\d.e+-]+) \* y", text)):
            own = by_key.get(key_of(first))
            x, y = (
                reference.values(reference.by_key[key_of(first)]),
                candidate.values(candidate.by_key[key_of(own["partner"])]),
            )
            if x is not None and y is not None and x.size == y.size:
                claim(
                    error_of(x * float(found[1]), y.reshape(x.shape))["relative"] < 0.05,
                    f"affine.scale: {text!r}, and that is not yours",
                )
    return wrong


def _was_given_the_same(tensors, one):
    """What is told of a tensor within its limit: all that its module was given is equal bit by bit."""
    given = [
        other
        for other in tensors
        if other["role"] == "input" and all(other[key] == one[key] for key in ("name", "step", "hit", "tags"))
    ]
    return bool(given) and all(other["error"]["identical"] for other in given)


def _is_given_later(tensors, one, own):
    """Two steps of one call may have changed places: then what the candidate came to first is named."""
    return one["role"] == "input" and own["role"] == "input" and one["step"] == own["step"]


def main() -> int:
    reference, candidate, answer = sys.argv[1:4]
    wrong = false_sentences(reference, candidate, json.loads(Path(answer).read_text()))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
