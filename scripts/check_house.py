#!/usr/bin/env python3
"""Checks the sources against the table of rooms in CONTRIBUTING.md ("The house"); prints nothing if they agree.

- A file includes only files of its own floor or a lower one. Units (X.c with X.h) do not include each other in a circle.
- The name of a public function begins with the name of its file, its room, or a type of its header. A type is defined
  only once in the whole tree. A source or a test outside its own unit names a public function.
- Files named in comments exist. Each header has a guard of its own.
- Assertions of command-line tests are lines of their own, since bash ignores a failed `a` in `a && b`.
- The top level has at most 45 files; a source has fewer than 700 lines and a function fewer than 60.
"""
import os
import re
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
try:
    files = subprocess.check_output(["git", "ls-files", "--cached", "--others", "--exclude-standard"], text=True,
                                    stderr=subprocess.DEVNULL).split("\n")
except (OSError, subprocess.CalledProcessError):  # an unpacked archive
    files = [os.path.relpath(os.path.join(d, f)) for d, dirs, names in os.walk(".") for f in names
             if not d.startswith(("./build", "./.git")) and f != "quill"]
files = [f for f in files if f and os.path.exists(f)]
sources = [f for f in files if re.search(r"\.(c|h|cu|cuh|cpp)$", f)]
text = {f: open(f, encoding="utf-8").read() for f in sources}
wrong = []

# ---- floors and circles ----
floors = {}  # "kv/", "kv/chain", "main": the floor of a room, or of a unit with a floor of its own
for floor, names in re.findall(r"^\| (\d+) \| (.*?) \|", open("CONTRIBUTING.md", encoding="utf-8").read(), re.M):
    for name in re.findall(r"`([^`]+)`", names):
        floors[name] = int(floor)


def unit(file):
    return file if file.endswith(".cu") else os.path.splitext(file)[0]


def floor_of(file):
    return floors.get(unit(file), floors.get(os.path.dirname(file) + "/"))


includes = {}
for f in sources:
    if f.startswith(("tests/", "scripts/")):
        continue
    if floor_of(f) is None:
        wrong.append(f"{f}: a row in the table of rooms expected, none found")
        continue
    for line, target in [(n, m[1]) for n, l in enumerate(text[f].split("\n"), 1) if (m := re.match(r'#\s*include "(.*?)"', l))]:
        if target not in text:
            wrong.append(f"{f}:{line}: {target}: a path from the top level expected")
        elif floor_of(target) is None or floor_of(target) > floor_of(f):
            wrong.append(f"{f}:{line}: {target} (floor {floor_of(target)}) is above floor {floor_of(f)}")
        elif unit(target) != unit(f):
            includes.setdefault(unit(f), set()).add(unit(target))


def circle(at, path):
    """Returns the first circle of includes from `at` on; remembers units without one."""
    if at in path:
        return path[path.index(at):] + [at]
    if at in clear:
        return None
    found = next((c for x in sorted(includes.get(at, ())) if (c := circle(x, path + [at]))), None)
    clear.add(at)
    return found


clear = set()
for u in sorted(includes):
    if c := circle(u, []):
        wrong.append("a circle of includes: " + " -> ".join(c))

# ---- names ----
def snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


bodies = {}  # a function -> the stems of the sources that define it
for f in sources:
    if not f.endswith(".h"):
        for name in re.findall(r"^(?!static)[a-zA-Z_][\w \*]*?[ \*](\w+)\([^;{]*\)\s*\{", text[f], re.M):
            bodies.setdefault(name, set()).add(os.path.basename(os.path.splitext(f)[0]))
units_of = {}  # a word -> the units whose code has it
for f in sources:
    for word in set(re.findall(r"\w+", re.sub(r"//[^\n]*", "", text[f]))):
        units_of.setdefault(word, set()).add(unit(f))
types = {}  # a type -> the units that define it
for f in sources:
    code = re.sub(r"//[^\n]*", "", text[f])
    for a, b in re.findall(r"^(?:\}|typedef (?:struct|enum|union) \{.*\}) ([A-Z]\w+);|^(?:struct|enum|union) ([A-Z]\w+) \{", code, re.M):
        types.setdefault(a or b, set()).add(unit(f))
for f in sources:
    if not f.endswith(".h") or f.startswith("tests/"):
        continue
    room, stem = os.path.basename(os.path.dirname(f)), os.path.basename(unit(f))
    code = re.sub(r"^\s*#.*(?:\\\n.*)*", "", re.sub(r"//[^\n]*", "", text[f]), flags=re.M)
    for m in re.finditer(r"^(?!static|typedef|INLINE)[a-zA-Z_][\w \*]*?[ \*](\w+)\([^;{]*\)\s*(?:__attribute__.*)?;", code, re.M):
        name, words = m[1], re.findall(r"\b[A-Z]\w+", code)
        allowed = {stem, stem.rstrip("s"), room} | bodies.get(name, set()) | {p for t in words for p in (snake(t), t.lower())}
        if not any(p and (name.startswith(p + "_") or name == p) for p in allowed):
            wrong.append(f"{f}: {name}: the name of its file, its room or its type expected in front")
        if units_of[name] == {unit(f)}:
            wrong.append(f"{f}: {name}: a use in another file expected, none found: make it static, or remove it")
for name, units in sorted(types.items()):
    if len(units) > 1 and not any(u.startswith("gpu/rt") for u in units):
        wrong.append(f"{name}: a type with one meaning expected, defined in {', '.join(sorted(units))}")

# ---- sizes ----
top = [f for f in files if "/" not in f]
if len(top) > 45:
    wrong.append(f"top level: at most 45 files expected, {len(top)} found")
for f in sources:
    lines = text[f].split("\n")
    if len(lines) > 700:
        wrong.append(f"{f}: fewer than 700 lines expected, {len(lines) - 1} found")
    start = None
    for n, line in enumerate(lines, 1):
        if re.match(r"[A-Za-z_]", line) and not line.startswith(("typedef", "namespace", "extern", "#")):
            start = n if "(" in line and not line.endswith(";") else None
        elif line.startswith("}") and start:
            if n - start + 1 >= 60:
                wrong.append(f"{f}:{start}: a function of fewer than 60 lines expected, {n - start + 1} found")
            start = None

# ---- guards ----
guards = {}
for f in sources:
    if m := re.search(r"^#ifndef (\w+_H)\n#define \1$", text[f], re.M):
        if f != guards.setdefault(m[1], f):
            wrong.append(f"{f}: {m[1]}: a guard of its own expected, that of {guards[m[1]]} found")

# ---- files that comments name ----
known = {p for f in files for p in (f, os.path.basename(f))} | {"llama2.c", "run.c", "export.py", "tokenizer.py", "common.h"}  # of other projects
for f in sources:
    for n, line in enumerate(text[f].split("\n"), 1):
        for name in re.findall(r"//.*?\b([\w/]+\.(?:c|h|cuh|cu|py|sh|bats))\b", line):
            if name not in known:
                wrong.append(f"{f}:{n}: {name}: a comment names a file that is not there")

# ---- assertions that cannot fail: bash goes on after `a && b` if a fails, and after `! a` ----
for f in files:
    for n, line in enumerate(open(f, encoding="utf-8").read().split("\n") if f.endswith(".bats") else [], 1):
        code = re.sub(r"\"[^\"]*\"|'[^']*'", "x", re.sub(r"\[\[ .*? \]\]", "[", line))
        if re.match(r"\s+(\[|cmp|grep|diff) .*&& *(\[|cmp|grep|diff)|\s+! [^|]*$", code):
            wrong.append(f"{f}:{n}: one condition a line expected, without ! in front: others do not end the test")

for w in wrong:
    print(w, file=sys.stderr)
sys.exit(1 if wrong else 0)
