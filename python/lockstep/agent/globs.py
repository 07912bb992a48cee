"""Shell patterns without the modules fnmatch and re."""


def matches(text, pattern):
    """* and ? and [abc], as fnmatchcase."""
    return _match(text, 0, _parts(pattern), 0)


def names_module(pattern, name):
    """A pattern for a module's name, with its component or without: transformer.blocks.0 is also blocks.0."""
    return matches(name, pattern) or ("." in name and matches(name.split(".", 1)[1], pattern))


def fits(pattern, text):
    """A pattern for the text or its end, or a part of the text."""
    if any(sign in pattern for sign in "*?["):
        return matches(text, pattern) or matches(text, "*" + pattern)
    return pattern in text


_parsed = {}


def _parts(pattern):
    found = _parsed.get(pattern)
    if found is None:
        found, at = [], 0
        while at < len(pattern):
            sign = pattern[at]
            if sign == "[":
                end = pattern.find("]", at + 2)
                if end > 0:
                    inside = pattern[at + 1 : end]
                    negated = inside.startswith("!")
                    found.append((negated, inside[1:] if negated else inside))
                    at = end + 1
                    continue
            if not (sign == "*" and found and found[-1] == "*"):
                found.append(sign)
            at += 1
        if len(_parsed) > 1000:
            _parsed.clear()
        _parsed[pattern] = found
    return found


def _in_class(letter, part):
    negated, inside = part
    at, found = 0, False
    while at < len(inside):
        if at + 2 < len(inside) and inside[at + 1] == "-":
            found |= inside[at] <= letter <= inside[at + 2]
            at += 3
        else:
            found |= inside[at] == letter
            at += 1
    return found != negated


def _match(text, at, parts, begin):
    star, back = -1, 0
    index = begin
    while at < len(text):
        part = parts[index] if index < len(parts) else None
        if part == "*":
            star, back = index, at
            index += 1
        elif part is not None and (
            part == "?" or part == text[at] or (isinstance(part, tuple) and _in_class(text[at], part))
        ):
            at += 1
            index += 1
        elif star >= 0:
            back += 1
            at, index = back, star + 1
        else:
            return False
    while index < len(parts) and parts[index] == "*":
        index += 1
    return index == len(parts)
