"""The bars that a session's costs are held to, and the table that shows them beside debugpy's."""

import subprocess


def bar_of(item, version):
    """(what is allowed, its unit) of a row; None: a part of another row."""
    monitored = version >= (3, 12)  # lines report there; before, the function gets other bytecode
    bars = {
        "start to first line": (50, "ms"),
        "next to stopped": (1, "ms"),
        "evaluate a shape": (0.5, "ms"),
        "summarise 4 M": (8, "ms"),
        "variables of a frame": (2, "ms"),
        "3 M calls, nothing set": (1.01, "x"),
        "3 M calls, cold": (1.05 if monitored else 1.02, "x"),
        "10 M lines, cold": (1.05 if monitored else 1.02, "x"),
        "10 M turns of a one-line loop": (1.1 if monitored else 1.02, "x"),
        "1 M lines, false condition, simple": (0.05, "us"),
        "1 M lines, false condition, any": (0.3, "us"),
        "torch, diffusers": (1.01, "x"),
    }
    return next((bar for beginning, bar in bars.items() if item.startswith(beginning)), None)


def values_of(row):
    """(ours, debugpy's or None, unit)"""
    if "ours_us" in row:
        return row["ours_us"], row.get("debugpy_us"), "us"
    if "ours_ratio" in row:
        return row["ours_ratio"], row.get("debugpy_ratio"), "x"
    return row["ours"], row.get("debugpy"), "ms"


def number(value, unit):
    return "" if value is None else f"{value:.3g} {unit}"


def table(rows, python, without, judged=True):
    """Both debuggers side by side, and how many times ours goes into the other's cost. without: why debugpy is in none of the rows; judged: whether
    the bars mean something, as they do not for short loops."""
    told = subprocess.run([python, "-V"], capture_output=True, text=True).stdout.strip()
    version = tuple(int(part) for part in told.split()[1].split(".")[:2])
    lines = [f"\n{told:60}{'bar':>10}{'ours':>12}{'':>6}{'debugpy':>12}{'debugpy / ours':>16}"]
    for row in rows:
        item = row["item"].removesuffix(" (ms)")
        bar = bar_of(item, version)
        beginning = f"{item:60}{number(*bar) if bar else '':>10}"
        if "not_measured" in row:
            lines.append(f"{beginning}  not measured: {row['not_measured']}")
            continue
        mine, other, unit = values_of(row)
        verdict = "" if bar is None or not judged else "ok" if mine <= bar[0] else "over"
        times = "" if other is None or mine <= 0 else f"{other / mine:.3g}"
        reason = f"  debugpy not measured: {row['debugpy_not_measured']}" if "debugpy_not_measured" in row else ""
        lines.append(f"{beginning}{number(mine, unit):>12}{verdict:>6}{number(other, unit):>12}{times:>16}{reason}")
    if without:
        lines.append(f"debugpy not measured: {without}")
    return "\n".join(lines)
