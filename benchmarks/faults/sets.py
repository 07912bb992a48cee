"""The sets of faults and of clean pairs, by name. README.md says what each holds and how it came about."""

from __future__ import annotations

import argparse

FAULT_SETS = (
    "suite_01_every_stage", "blind_02_other_places", "blind_03_mended_kinds", "blind_04_other_models", "blind_05_kinds_elsewhere",
    "blind_06_real_ports", "blind_07_port_reports", "tuning_08_neighbours", "tuning_09_general_forms", "tuning_10_porting_steps",
    "blind_11_odd_shapes", "blind_12_public_reports", "tuning_13_attention_rotary", "tuning_14_norms_and_linears",
    "tuning_15_around_the_transformer", "blind_16_one_part_alone", "blind_17_framework_reports", "blind_18_contorted",
    "blind_19_plain_forms",
)  # fmt: skip
CLEAN_SETS = ("clean_01_rounding", "clean_02_other_worlds")


def chosen_from(sets):
    """For argparse: a set by its name, its number, or any part of its name that no other has."""

    def choose(word: str) -> str:
        found = [name for name in sets if name == word or (word.isdigit() and int(name.split("_")[1]) == int(word))]
        found = found or [name for name in sets if word in name]
        if len(found) != 1:
            raise argparse.ArgumentTypeError(f"{word!r} names {len(found)} sets; expected one of {', '.join(sets)}")
        return found[0]

    return choose
