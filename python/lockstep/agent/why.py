"""Why a breakpoint did not stop the program."""

import os
import sys

from . import native, sources


def explain(agent, one, ended=None):
    causes = list(_causes(agent, one, ended))
    answer = causes[0]["message"] if causes else "nothing speaks against it: the line was not reached yet"
    about = {"answer": answer, "causes": causes}
    if one.id:
        about["breakpoint"] = one.describe(agent.engine)
    return about


def _cause(cause, message, **more):
    return {"cause": cause, "message": message, **more}


def _causes(agent, one, ended):
    if one.hit_count and not (one.hits_wanted and one.hit_count < one.hits_wanted):
        yield _cause("hit", f"it was hit {one.hit_count} times", hit_count=one.hit_count)
        return
    if not one.enabled:
        yield _cause("disabled", "the breakpoint is switched off", hint="switch it on with enable")
    reached = one.reached(agent.engine)
    if one.errors:
        yield _cause(
            "condition_error",
            f"its condition raised {one.errors} times: {one.last_error['type']}: {one.last_error['message']}",
            errors=one.errors,
            last_error=one.last_error,
        )
    if one.condition and reached > one.errors:
        yield _cause(
            "condition_false",
            f"the line was reached {reached} times and the condition `{one.condition}` was false {reached - one.errors} times",
            times=reached - one.errors,
            condition=one.condition,
        )
    elif one.hits_wanted and one.hit_count:
        yield _cause(
            "hits_not_reached",
            f"it was hit {one.hit_count} times; it stops from hit {one.hits_wanted} on",
            hit_count=one.hit_count,
            hits_wanted=one.hits_wanted,
        )
    if one.kind == "line":
        yield from _line_causes(one, agent, reached)
    elif one.kind in ("function", "text") and not one.points:
        yield from _name_causes(agent, one)
    elif one.kind in ("checkpoint", "data") and agent.features is not None:
        seen = agent.features.names_seen(one.kind)
        what = "checkpoints" if one.kind == "checkpoint" else "modules"
        wanted = one.checkpoint or one.module
        from .globs import matches, names_module

        if not any(matches(name, wanted) if one.checkpoint else names_module(wanted, name) for name in seen):
            listed = ", ".join(seen[:5]) or "none"
            yield _cause("name_never_seen", f"no name of {what} fits {wanted}; seen so far: {listed}", seen=seen[:50])
        elif one.kind == "checkpoint":
            skipped = agent.features.skipped(wanted)
            if skipped:
                yield _cause(
                    "skipped", f"{skipped} checkpoints of that name have skip=True, which only records", times=skipped
                )
            if one.context and one.reached_before:
                yield _cause(
                    "condition_false",
                    f"the context {one.context} did not fit {one.reached_before} times",
                    times=one.reached_before,
                    condition=str(one.context),
                )
        elif one.kind == "data":
            yield _cause(
                "condition_false",
                f"no output of {wanted} fitted yet: {reached or agent.features.looked(one)} were looked at",
                times=agent.features.looked(one),
                condition=one.when or "nan",
            )
    elif one.points and not reached:
        yield from _not_reached(one)
    gone = ended or agent.endings.exit
    if gone is not None:
        error = gone.get("exception")
        text = "the program ended before the breakpoint was reached"
        if gone["how"] == "exception" and error is not None:
            place = error.get("location") or {}
            text = f"the program ended first: {error['type']}: {error['message']}" + (
                f" at {place['file']}:{place['line']}" if place else ""
            )
        elif gone["how"] == "sys_exit":
            text = f"the program called sys.exit({gone['code']}) first"
        yield _cause(
            "ended_first", text, **{key: gone[key] for key in ("how", "code", "exception", "location") if key in gone}
        )
    if agent.endings.forks:
        yield _cause("in_child_process", "the program forked; what runs in its children is not debugged")


def _line_causes(one, agent, reached):
    path, loaded = one.path or one.file, {}
    if (
        not one.points
    ):  # else its code was there: thousands of names need not be looked at, for each breakpoint, at the end
        loaded = {sources.canonical(file): (file, name) for file, name in sources.loaded_files().items()}
        if agent.script:
            loaded.setdefault(sources.canonical(agent.script), (agent.script, "__main__"))
    executed = path in loaded or bool(one.points)
    if one.state == "invalid" or (one.line and one.line != one.requested_line):
        later = f"; the next line with code is {one.line}" if one.line else ""
        text = sources.line_text(one.file, one.requested_line).strip()
        kind = "is blank" if not text else "is a comment" if text.startswith("#") else "holds no code"
        yield _cause("no_code", f"line {one.requested_line} {kind}{later}", line=one.requested_line, next_line=one.line)
    if not executed:
        yield from _other_copies(one, path, loaded)
    elif not reached and not one.errors:
        yield from _not_reached(one)


def _other_copies(one, path, loaded):
    base = os.path.basename(path)
    same = [file for canonical, (file, _) in loaded.items() if os.path.basename(canonical) == base]
    copy = _other_copy(path, same)
    if copy is not None:
        root, package = _project(path)
        command = f"{sys.executable} -m pip install -e {root}"
        yield _cause(
            "other_copy",
            f"another copy is imported: {copy}, not {path}",
            imported=copy,
            asked=path,
            package=package,
            command=command,
            hint=f"make the program use your copy: {command}; or break in the file that runs",
        )
    exists = "" if os.path.exists(path) else " and does not exist"
    ran = ": files of that name that were: " + ", ".join(same[:5]) if same else "; no file of that name was"
    yield _cause("never_executed", f"{path} was never executed{exists}{ran}", file=path, same_name=same[:20])


def _other_copy(path, same):
    """The loaded file whose path ends most like the one asked for: at least its folder must agree."""
    parts = path.split("/")
    best, length = None, 1
    for file in same:
        other = sources.canonical(file).split("/")
        common = 0
        while common < min(len(parts), len(other)) and parts[-1 - common] == other[-1 - common]:
            common += 1
        if common > length:
            best, length = file, common
    return best


def _project(path):
    """The folder to install from, and the package's name."""
    folder = os.path.dirname(path)
    package = os.path.basename(folder)
    while os.path.exists(os.path.join(folder, "__init__.py")):
        package = os.path.basename(folder)
        folder = os.path.dirname(folder)
    for root in (folder, os.path.dirname(folder)):
        if any(os.path.exists(os.path.join(root, name)) for name in ("pyproject.toml", "setup.py", "setup.cfg")):
            return root, package
    return folder, package


def _not_reached(one):
    place = one.places[0] if one.places else {"function": "?"}
    runs = None
    for point in one.points:
        if native.module is not None and sys.version_info < (3, 12):
            runs = native.module.code_has_run(point.code)
    called = "was not called" if runs is False else "the line was not reached"
    yield _cause(
        "not_reached",
        f"the file was loaded, but {called if runs is False else called}: {place['function']}",
        function=place["function"],
        function_runs=runs,
    )


def _name_causes(agent, one):
    names = set()
    last = (one.function or "").rpartition(".")[2]
    if one.kind == "function":
        functions, _ = agent.engine.scan("")
        for function in functions:
            name = function.__code__.co_name
            if not name.startswith("<"):
                names.add(name)
        similar = sorted(names, key=lambda name: _distance(name, last))[:5]
        yield _cause(
            "no_such_function",
            f"no function {one.function} has been loaded yet; similar: {', '.join(similar)}",
            similar=similar,
        )
    else:
        file = f" of {one.file}" if one.file else ""
        yield _cause("no_such_text", f"no statement{file} begins with {one.text!r}", similar=_similar_lines(agent, one))


def _similar_lines(agent, one):
    file = one.file or agent.script
    lines = [line.strip() for line in sources.lines_of(file)[:5000] if line.strip()] if file else []
    return sorted(set(lines), key=lambda line: _distance(line[:100], one.text[:100]))[:5]


def _distance(left, right):
    """Edit distance of short texts."""
    left, right = left[:60].lower(), right[:60].lower()
    if abs(len(left) - len(right)) > 30:
        return 100
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row[0] = row[0], i
        for j, b in enumerate(right, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (a != b))
    return row[-1]
