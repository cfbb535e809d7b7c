#!/usr/bin/env python3
"""quill's masks beside those of the llguidance package, along sampled answers.

tests/rig/masks.py --masks build/release/tests/masks --vocab VOCAB.gguf [--count 40] [--seed 1] [--show 3]
Regular expressions, grammars and random JSON schemas (tests/rig/schemas.py; without white space) are walked by random
tokens that llguidance allows; each step's masks are compared, and tokens that only one side allows are counted by
the classes of `CLASSES` below. Exit code 1: a difference has no class; 77: llguidance or numpy is missing.
"""
import argparse
import collections
import json
import os
import random
import subprocess
import sys

try:
    import llguidance
    import llguidance.numpy
    import numpy
    from llguidance.gbnf_to_lark import any_to_lark
except ImportError:
    print("the Python packages llguidance and numpy are not installed")
    sys.exit(77)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    import schemas
except SystemExit:
    schemas = None  # jsonschema is missing

REGEXES = [
    "[a-z]{3,8} (is|was) [0-9]{1,3}", "(ab|a)*c?", "\\d{4}-\\d{2}-\\d{2}", "[^\\n]{1,20}\\n", "(yes|no|may be)( \\w+)*[.!]",
    "\\w+@\\w+\\.(com|org)", "[\\u00e0-\\u00ff]{2,}", "([a-c][x-z]){2,4}|[0-9]+", ".{5}", "(a|b|ab)(c|bcd)(d*)",
    "\"([^\"\\\\]|\\\\[\"\\\\n])*\"", "-?(0|[1-9]\\d*)(\\.\\d+)?", "[A-Z][a-z]+( [A-Z][a-z]+)*", "\\s*x\\s*",
    "(a{2}|b{3}){2,}", "[\\u4e00-\\u9fff]+", "#[0-9a-f]{6}", "(\\d{1,3}\\.){3}\\d{1,3}", "a?b?c?d?e?", "[^a]", "\\S+ \\S+",
]
GRAMMARS = [
    'root ::= "yes" | "no"', 'root ::= "- " [a-z ]+ ("\\n- " [a-z ]+){2}',
    'root ::= expr\nexpr ::= term ([-+*] term)*\nterm ::= [0-9]+ | "(" expr ")" | [a-z]+ "(" expr ")"',
    'root ::= "(" root ")" | "x"', 'root ::= item ("," item)*\nitem ::= [a-z]+ "=" value\nvalue ::= [0-9]+ | "\\"" [^"]* "\\""',
    'root ::= s\ns ::= "a" s "b" | "ab"', 'root ::= line+\nline ::= [^\\n]+ "\\n"',
    'root ::= "<" tag ">" body "</" tag ">"\ntag ::= "b" | "i"\nbody ::= [^<]* | root',
    'root ::= object\nobject ::= "{" pair ("," pair)* "}"\npair ::= "\\"" [a-z]+ "\\":" (object | [0-9]+)',
]

class Place:
    """Where a prefix of JSON stands: in a string (with its text so far), in a number, or between parts."""

    def __init__(self, prefix):
        self.string = self.number = self.key = False
        text, at, opened, stack = prefix.decode("utf-8", "replace"), 0, 0, []
        while at < len(text):
            c = text[at]
            if c == '"':
                opened, at = at, at + 1
                while at < len(text) and text[at] != '"':
                    at += 2 if text[at] == "\\" else 1
                if at >= len(text):
                    self.string = True
                    self.text = text[opened + 1:]
                    self.key = bool(stack) and stack[-1] == "{" and self.last in "{,"
                    return
                self.last = '"'
            elif c in "[{":
                stack.append(c)
                self.last = c
            elif c in "]}":
                stack and stack.pop()
                self.last = c
            elif not c.isspace():
                self.last = c
            at += 1
        tail = ""
        while text and text[-1] in "+-.eE0123456789":
            tail, text = text[-1] + tail, text[:-1]
        self.number = bool(tail)
        self.tail = tail

    last = ""


# What may differ in JSON, and why: the first class whose rule holds. A rule sees the schema's text, the place, the token,
# and whether quill alone allows it; a token of no bytes is the end of the answer.
NUMBERS = ("minimum", "maximum", "exclusiveM", "multipleOf")


def in_number(place, token):
    return not place.string and (place.number or token[:1].isdigit() or token[:1] in b"-.eE")


def long_number(place, token):
    number = place.tail + "".join(chr(b) for b in token if chr(b) in "+-.eE0123456789")
    mantissa, _, exponent = number.replace("E", "e").partition("e")
    whole, _, fraction = mantissa.partition(".")
    return len(whole.lstrip("-")) > 16 or len(fraction) > 16 or len(exponent.lstrip("+-")) > 2


CLASSES = {
    "forced bytes": ("where only one continuation is possible, llguidance admits the one token that its tokenizer makes "
                     "of it, here a byte; quill admits every token that it begins with", None),
    "long numbers": ("quill ends integers and fractions after 16 digits, exponents after two",
                     lambda s, p, t, ours: (not ours or not t) and in_number(p, t) and long_number(p, t)),
    "spelling of bounded numbers": ("between bounds the two admit different spellings of the same numbers (1.0, 1e1, -0)",
                                    lambda s, p, t, ours: in_number(p, t) and any(k in s for k in NUMBERS)),
    "other properties": ("llguidance admits properties that are not named, quill only where additionalProperties says so",
                         lambda s, p, t, ours: not ours and '"properties"' in s and (p.key or not p.string or any(b in t for b in (b'",', b"],", b"},")))),
    "formats": ("the expressions of formats differ: days of a month, lengths of names",
                lambda s, p, t, ours: (p.string or b'"' in t) and '"format"' in s),
    "escapes": ("of characters that patterns and lengths count, quill has the usual form alone; of others, pairs of "
                "surrogates alone, and no NUL",
                lambda s, p, t, ours: p.string and (b"\\" in t or "\\" in p.text[-6:])),
}


class Wrapper:
    def __init__(self, pieces, eog):
        self.tokens = [bytes.fromhex(p) if p else b"\xff[%d]" % i for i, p in enumerate(pieces)]
        self.special_token_ids = [i for i, p in enumerate(pieces) if not p]
        self.eos_token_id, self.bos_token_id = eog[0], None
        self.single = {t: i for i, t in enumerate(self.tokens) if len(t) == 1}

    def __call__(self, text):
        return [self.single[bytes([b])] for b in (text if isinstance(text, bytes) else text.encode())]


class Ours:
    def __init__(self, program, vocab):
        self.p = subprocess.Popen([program, vocab], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first = json.loads(self.p.stdout.readline())
        self.eog, self.pieces = first["eog"], first["pieces"]

    def masks(self, kind, text, prefixes):
        self.p.stdin.write(json.dumps({"kind": kind, "text": text, "prefixes": prefixes}).encode() + b"\n")
        self.p.stdin.flush()
        head = json.loads(self.p.stdout.readline())
        if "error" in head:
            return head["error"], []
        bits = [numpy.frombuffer(self.p.stdout.read(head["n"]), dtype=numpy.uint8) for _ in prefixes]
        return None, [numpy.unpackbits(b, bitorder="little")[:len(self.pieces)].astype(bool) for b in bits]


def grammar_of(kind, text):
    if kind == "regex":  # quill's classes are those of ASCII
        for letter, ranges in ("\\d", "[0-9]"), ("\\w", "[A-Za-z0-9_]"), ("\\s", "[ \\t\\n\\r\\f\\v]"), ("\\S", "[^ \\t\\n\\r\\f\\v]"):
            text = text.replace(letter, ranges)
        return llguidance.LLMatcher.grammar_from_regex(text)
    if kind == "gbnf":
        return llguidance.LLMatcher.grammar_from_lark(any_to_lark(text))
    return llguidance.LLMatcher.grammar_from_json_schema(text, defaults={"whitespace_flexible": False})


def walk(tokenizer, wrapper, grammar, r, most):
    """Random tokens along llguidance's masks: the prefixes and the masks behind them."""
    m = llguidance.LLMatcher(tokenizer, grammar)
    if m.is_error():
        return m.get_error(), [], []
    n, prefix, prefixes, masks = len(wrapper.tokens), [], [], []
    room = llguidance.numpy.allocate_token_bitmask(1, n)
    while len(prefix) < most and not m.is_stopped():
        llguidance.numpy.fill_next_token_bitmask(m, room)
        mask = numpy.unpackbits(room.view(numpy.uint8)[0], bitorder="little")[:n].astype(bool)
        prefixes.append(list(prefix))
        masks.append(mask)
        ids = numpy.flatnonzero(mask)
        ids = [int(i) for i in r.sample(list(ids), min(len(ids), 8)) if i != wrapper.eos_token_id]
        if not ids:
            break
        token = min(ids, key=lambda i: len(wrapper.tokens[i])) if r.random() < 0.5 else ids[0]
        m.consume_token(token)
        prefix.append(token)
    return None, prefixes, masks


def classify(kind, schema, prefix, token, ours, forced):
    if ours and forced and token.startswith(forced):
        return "forced bytes"
    place = Place(prefix) if kind == "schema" else None
    for name, (_, rule) in CLASSES.items():
        if place and rule and rule(schema, place, token, ours):
            return name
    return None


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--masks", required=True)
    a.add_argument("--vocab", required=True)
    a.add_argument("--count", type=int, default=40)
    a.add_argument("--walks", type=int, default=2)
    a.add_argument("--steps", type=int, default=30)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--show", type=int, default=3)
    a.add_argument("--dump", help="a file for all differences, as lines of JSON")
    a = a.parse_args()
    r = random.Random(a.seed)
    ours = Ours(a.masks, a.vocab)
    wrapper = Wrapper(ours.pieces, ours.eog)
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(wrapper), slices=[])
    ends = numpy.zeros(len(wrapper.tokens), dtype=bool)
    ends[ours.eog] = True
    special = numpy.zeros(len(wrapper.tokens), dtype=bool)
    special[wrapper.special_token_ids] = True
    cases = [("regex", t) for t in REGEXES] + [("gbnf", t) for t in GRAMMARS]
    for _ in range(a.count if schemas else 0):
        cases.append(("schema", json.dumps(schemas.value(r, 3))))
    dump = open(a.dump, "w") if a.dump else None
    total, equal = collections.Counter(), collections.Counter()
    classes, shown, refused = collections.Counter(), collections.Counter(), []
    for kind, text in cases:
        for _ in range(a.walks):
            try:
                error, prefixes, theirs = walk(tokenizer, wrapper, grammar_of(kind, text), r, a.steps)
            except Exception as e:
                error, prefixes = str(e), []
            if error:
                refused.append((kind, "llguidance", error.splitlines()[0][:100]))
                break
            error, mine = ours.masks(kind, text, prefixes)
            if error:
                refused.append((kind, "quill", error))
                break
            for prefix, x, y in zip(prefixes, mine, theirs):
                end_same = bool(x[ends].any() == y[ends].any())
                x, y = x & ~special, y & ~special
                total[kind] += 1
                different = numpy.flatnonzero(x != y)
                equal[kind] += end_same and not len(different)
                bytes_ = b"".join(wrapper.tokens[i] for i in prefix)
                only = numpy.flatnonzero(y)
                forced = wrapper.tokens[only[0]] if len(only) == 1 else None  # the one token of llguidance's mask
                found = set() if end_same else {(classify(kind, text, bytes_, b"", not y[ends].any(), None), b"(end)")}
                if dump and (len(different) or not end_same):
                    some = [[wrapper.tokens[i].hex(), bool(x[i])] for i in different[:200]]
                    dump.write(json.dumps([kind, text, bytes_.hex(), end_same, bool(y[ends].any()), some]) + "\n")
                for i in different[:2000]:
                    found.add((classify(kind, text, bytes_, wrapper.tokens[i], bool(x[i]), forced), wrapper.tokens[i]))
                for name in {n for n, _ in found}:
                    classes[kind, name] += 1
                    if shown[kind, name] < a.show and name is None:
                        shown[kind, name] += 1
                        some = [(t, "ours" if x[wrapper.tokens.index(t)] else "theirs") if t != b"(end)" else t for n, t in found if n == name][:6]
                        print(f"{kind} {text[:300]}\n  behind {bytes_!r}: {len(different)} tokens differ: {some}")
                if not x.any() and not x[ends].any() and y.any():
                    break  # refused: what follows is no news
    for kind in total:
        print(f"{kind}: {total[kind]} masks, {equal[kind]} equal")
    for (kind, name), n in sorted(classes.items(), key=lambda c: -c[1]):
        print(f"  {n} {kind}: {name}: {CLASSES[name][0] if name else 'NOT EXPLAINED'}")
    for what in collections.Counter(refused).most_common(12):
        print("  refused:", what)
    return 1 if any(name is None for _, name in classes) else 0


if __name__ == "__main__":
    sys.exit(main())
