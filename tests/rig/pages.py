#!/usr/bin/env python3
"""tests/rig/pages.py: runs the commands that a page shows and compares what they print with what the page shows.

usage: pages.py [--update] PAGE...      in a folder that has the files the page names, with quill in PATH

A block that begins with ```sh is one script: it runs with `bash -e -o pipefail`, and it has to end with exit code 0.
```sh not run: REASON   is left out.
A script may only call the programs in ALLOWED: what a page says about installing, fetching or building is never done here.
A block that begins with ```text right behind it is what the script prints, stdout and stderr together. The word after
`text` says how the two are compared:
  (nothing)  exactly, but `...` in the page is any text of a line, and a line `...` is any number of lines; so are empty lines at the end
  rates      exactly, but a number with a decimal point is any other, and a run of blanks is one
  labels     the first words of the lines that do not begin with a blank: for times and properties of the machine
  json       JSON values one behind the other: exactly, but a number with a decimal point is any other, and so is a seed
--update writes what is printed into the page, where the comparison fails.
Scripts whose text is compared in another way than by labels find the configuration in $PAGES_EXACT; it chooses kernels that
compute the same on every machine. Scripts with --preset or --show-config find the one in $PAGES_CONFIG. Scripts that match
$PAGES_SKIP are left out.
"""
import json
import os
import re
import shlex
import subprocess
import sys

SECONDS = 120
# ssh and jq are stand-ins that tests/docs.bats puts into PATH; xargs and timeout call what follows them.
ALLOWED = {"quill", "printf", "echo", "cat", "wc", "grep", "seq", "xargs", "timeout", "git", "ssh", "jq", "python3", "read", "while", "do", "done"}


def blocks(lines):
    """Yields (first, last, info, text): lines between the fences of each block, numbered from 0."""
    first = info = None
    for i, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if first is None:
            first, info = i + 1, line[3:].strip()
        else:
            yield first, i, info, "\n".join(lines[first:i])
            first = None
    assert first is None, "a block without an end"


def values(text):
    decoder, at, found = json.JSONDecoder(), 0, []
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def lasting(value, name=""):
    """A JSON value in which what differs from run to run is only named: numbers with a decimal point, and seeds."""
    if isinstance(value, dict):
        return {field: lasting(v, field) for field, v in sorted(value.items())}
    if isinstance(value, list):
        return [lasting(v) for v in value]
    return "a number" if isinstance(value, float) or name == "seed" else value


def exact(shown):
    """A regular expression for text in which `...` stands for what is left out."""
    parts = [r"(.*\n)*?" if line.strip() == "..." else "[^\n]*".join(map(re.escape, line.split("..."))) + "\n" for line in shown.splitlines()]
    return "".join(parts)


def without_rates(text):
    return "\n".join(re.sub(r" +", " ", re.sub(r"[0-9]+[.][0-9]+", "0.0", line)).rstrip() for line in text.splitlines())


def labels(text):
    return [line.split()[0] for line in text.splitlines() if line[:1].strip()]


def agree(how, shown, printed):
    if how == "":
        return re.fullmatch(exact(shown), printed.rstrip("\n") + "\n") is not None
    if how == "rates":
        return re.fullmatch(exact(without_rates(shown)), without_rates(printed) + "\n") is not None
    if how == "labels":
        return labels(shown) == labels(printed)
    if how == "json":
        return [lasting(v) for v in values(shown)] == [lasting(v) for v in values(printed)]
    raise SystemExit(f"text {how}: no way to compare")


def commands(script):
    """The first word of each command of a script."""
    lexer = shlex.shlex(script.replace("\\\n", " ").replace("\n", " ;\n"), posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    found, first = [], True
    for word in lexer:
        if first and word.strip(";|&()<>"):
            found.append(word)
        first = bool(re.fullmatch(r"[;|&()]+", word)) or word in ("while", "do") or word.endswith("=$")
    return found


def uncommented(script):
    return "\n".join(re.sub(r"(^|\s+)#( .*)?$", "", line) for line in script.split("\n"))


def folded(printed):
    """JSON as a page shows it: no line far beyond 120 characters, broken behind a comma in front of a name."""
    lines = [""]
    for part in re.split(r'(?<=,)(?="|\{)', printed):
        if len(lines[-1]) + len(part) > 120:
            lines.append(" ")
        lines[-1] += part
    return "\n".join(lines)


def run(script, how):
    configured = re.search(r"--preset|--show-config", script)
    config = "PAGES_CONFIG" if configured else "PAGES_EXACT" if how not in (None, "labels") else None
    env = dict(os.environ, XDG_CONFIG_HOME=os.environ[config]) if config and config in os.environ else None
    done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=SECONDS)
    return done.returncode, done.stdout.decode(errors="replace")


def shown_after(lines, found, i):
    """The block of text right behind block i, with the word that says how it is compared; Nones if there is none."""
    if i + 1 == len(found) or found[i + 1][2].split()[:1] != ["text"]:
        return None, None, None, None
    begin, end, info, shown = found[i + 1]
    if any(line.strip() for line in lines[found[i][1] + 1:begin - 1]):
        return None, None, None, None
    return begin, end, info[4:].strip(), shown


def check(page, update, skip):
    lines = open(page).read().split("\n")
    found = list(blocks(lines))
    n_run = n_compared = n_wrong = 0
    new = []
    for i, (first, _, info, script) in enumerate(found):
        if info.split()[:1] != ["sh"] or info.startswith("sh not run: "):
            continue
        assert info == "sh", f"{page}:{first}: sh or 'sh not run: REASON' expected, found {info}"
        if skip and re.search(skip, script):
            continue
        script = script.replace("./quill", "quill")
        foreign = sorted(set(commands(uncommented(script))) - ALLOWED - {"answer=$"})
        if foreign:
            print(f"{page}:{first + 1}: only {', '.join(sorted(ALLOWED))} expected, found {', '.join(foreign)}; mark it: sh not run: REASON")
            n_wrong += 1
            continue
        begin, end, how, shown = shown_after(lines, found, i)
        code, printed = run(script, how)
        n_run += 1
        if code:
            print(f"{page}:{first + 1}: exit code {code}\n{script}\n{printed}")
            n_wrong += 1
        if how is None:
            continue
        n_compared += 1
        if not agree(how, shown, printed):
            print(f"{page}:{begin + 1}: not what is printed\n---- the page\n{shown}\n---- printed\n{printed}")
            n_wrong += 1
            new.append((begin, end, (folded(printed) if how == "json" else printed).rstrip("\n")))
    if update:
        for begin, end, printed in reversed(new):
            lines[begin:end] = printed.split("\n")
        open(page, "w").write("\n".join(lines))
    print(f"{os.path.basename(page)}: {n_run} scripts, {n_compared} outputs compared")
    return n_wrong


def main():
    pages = [a for a in sys.argv[1:] if not a.startswith("--")]
    update = "--update" in sys.argv[1:]
    skip = os.environ.get("PAGES_SKIP", "")
    return 1 if sum(check(page, update, skip) for page in pages) and not update else 0


if __name__ == "__main__":
    sys.exit(main())
