"""A grammar as text files: rules with alternatives, one to write sentences, the same one to recognise them.

    name: first {other} alternative | second
        | third

{other} is expanded by the rule of that name, or by what the caller binds to it. Recognition works on words, without case; "an" counts as "a" and is judged by its own rule.
"""

import re

SLOT = re.compile(r"\{(\w+)\}")
WORD = re.compile(r"[A-Za-z]+|\d+|[^\sA-Za-z\d]")
A_OR_AN = re.compile(r"\b([Aa])n? (?=([A-Za-z]+))")
SENTENCE_END = re.compile(r'(?<=[.!?])\s+(?=["A-Z])|(?<=[.!?]")\s+(?=["A-Z])|\n+')
SAID_YOU = ("uni", "use", "usu", "ukulele", "one", "euro")  # written with a vowel, spoken with a consonant
SILENT_H = ("hour", "honest", "heir")


def words(text):
    return WORD.findall(text)


def takes_an(word):
    w = word.lower()
    return w.startswith(SILENT_H) or w[0] in "aeiou" and not w.startswith(SAID_YOU)


def fix_articles(text):
    return A_OR_AN.sub(lambda m: m[1] + ("n " if takes_an(m[2]) else " "), text)


def articles_are_right(text):
    return fix_articles(text) == text


def sentence(text):
    """What an expansion needs to stand as a sentence: its articles and its capital letter."""
    text = fix_articles(text)
    at = 1 if text[0] == '"' else 0
    return text[:at] + text[at].upper() + text[at + 1 :]


def sentences(text):
    return [s for s in SENTENCE_END.split(text) if s.strip()]


def read_rules(*paths):
    rules, name = {}, None
    for path in paths:
        for number, line in enumerate(open(path, encoding="utf-8"), 1):
            if not line.strip() or line.startswith("#"):
                continue
            if not line[0].isspace():
                name, colon, line = line.partition(":")
                if not colon or not re.fullmatch(r"\w+", name):
                    raise SystemExit(f"{path}:{number}: 'name: alternative | ...' expected, found {name.strip()!r}")
                if name in rules:
                    raise SystemExit(f"{path}:{number}: each rule once expected, {name!r} again")
                rules[name] = []
            rules[name] += [a.strip() for a in line.split("|") if a.strip()]
    return rules


class Words(list):
    """A text's words as rules are matched against them, and as they were written."""

    def __init__(self, text):
        self.as_written = words(text)
        super().__init__("a" if w.lower() == "an" else w.lower() for w in self.as_written)


class Grammar:
    def __init__(self, *paths):
        self.rules = read_rules(*paths)
        # An alternative is literals and slots in turns: "the {x} ran" is ("the ", "x", " ran").
        self.parts = {name: [SLOT.split(a) for a in alts] for name, alts in self.rules.items()}
        self.first = None  # built by the first recognition

    def check(self, bound):
        """Every slot has a rule or stands in `bound`: the error of a typing slip, found at once."""
        for name, alts in self.parts.items():
            for parts in alts:
                for slot in parts[1::2]:
                    if slot not in self.rules and slot not in bound:
                        raise SystemExit(f"rule {name}: no rule for {{{slot}}}")

    def size(self, name):
        return len(self.rules[name])

    def fill(self, parts, rng, bound):
        out = parts[:]
        for i in range(1, len(parts), 2):
            value = bound.get(parts[i])
            out[i] = value if value is not None else self.expand(parts[i], rng, bound)
        return "".join(out)

    def expand(self, name, rng, bound={}, choice=None):
        alts = self.parts[name]
        return self.fill(alts[int(rng.random() * len(alts)) if choice is None else choice], rng, bound)

    def say(self, name, rng, bound={}, choice=None):
        return sentence(self.expand(name, rng, bound, choice))

    # ---- recognition: which ends can a rule reach from a word? ----

    def build(self, classes):
        """classes: slots that are no rules, as extra rules; a function is a test of one word as written."""
        self.first, self.anything = {}, {}
        rules = {**self.parts, **{k: v if callable(v) else [SLOT.split(a) for a in v] for k, v in classes.items()}}
        self.tests = {k: v for k, v in rules.items() if callable(v)}
        for name, alts in rules.items():
            if name in self.tests:
                continue
            by_word, others = {}, []
            for parts in alts:
                seq = []
                for i, p in enumerate(parts):
                    if i % 2:
                        seq.append((p,))  # a slot
                    else:
                        seq += Words(p)
                if seq and isinstance(seq[0], str):
                    by_word.setdefault(seq[0], []).append(seq)
                else:
                    others.append(seq)
            self.first[name], self.anything[name] = by_word, others

    def ends(self, name, at, ws, memo):
        key = (name, at)
        if key in memo:
            return memo[key]
        memo[key] = found = set()
        if name in self.tests:
            if at < len(ws) and self.tests[name](ws.as_written[at]):
                found.add(at + 1)
            return found
        alts = self.anything[name]
        if at < len(ws):
            alts = alts + self.first[name].get(ws[at], [])
        for seq in alts:
            here = {at}
            for item in seq:
                if isinstance(item, str):
                    here = {h + 1 for h in here if h < len(ws) and ws[h] == item}
                else:
                    here = set().union(*(self.ends(item[0], h, ws, memo) for h in here))
                if not here:
                    break
            found |= here
        return found

    def accepts(self, text, start="sentence"):
        ws = Words(text)
        opens = text[:1] == '"' or text[:1].isupper()
        return opens and articles_are_right(text) and len(ws) in self.ends(start, 0, ws, {})
