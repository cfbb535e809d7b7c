"""Exercises without sense: words in random order to be copied, changed, picked out and looked up.

Nothing but looking back at the text predicts an answer here, so they teach looking back faster than stories do. Each function
takes the grammar and a source of random numbers and returns (kind, question, answer). make_corpus.py calls them.
"""

import re

from corpus_skills import put
from grammar import sentences

VOCABULARY = []


def vocabulary(g):
    """All plain words of the grammar but held-out names."""
    if not VOCABULARY:
        found = {w for rule, alts in g.rules.items() for a in alts if "{" not in a for w in re.findall(r"[A-Za-z]+", a)}
        VOCABULARY.extend(sorted(found - g.held_out))
    return VOCABULARY


def invented_name(g, rng):
    names = g.rules[rng.choice(("boy", "girl"))]
    while True:
        a, b = rng.choice(names), rng.choice(names)
        name = a[: rng.randrange(2, len(a))] + b[rng.randrange(1, len(b) - 1) :]
        if len(name) < 10 and name not in g.held_out:
            return name


def piece(g, rng):
    """A part of a word: whatever stands there must be copied, the rarest token too."""
    w = rng.choice(vocabulary(g))
    first = rng.randrange(len(w))
    return w[first : first + rng.randrange(1, 5)]


def word(g, rng):
    while (found := any_word(g, rng)) in g.held_out:
        pass
    return found


def any_word(g, rng):
    kind = rng.random()
    if rng.random() < 0.25:
        return piece(g, rng) + (piece(g, rng) if kind < 0.6 else "") + (piece(g, rng) if kind < 0.2 else "")
    if kind < 0.15:
        return invented_name(g, rng)
    if kind < 0.2:
        return str(rng.randrange(1000))
    w = rng.choice(vocabulary(g))
    return w.capitalize() if kind > 0.95 else w


def how_many(rng, most):
    """Small numbers as often as large ones, seen on a scale of ratios."""
    return int(3 * (most / 3) ** rng.random())


def clause(g, rng, n, among=()):
    """n words that end as a sentence does; with one of `among` somewhere, where there are any."""
    ws = [word(g, rng) for _ in range(n)]
    if among:
        ws[rng.randrange(n)] = rng.choice(among)
    ws[0] = ws[0][0].upper() + ws[0][1:]
    return " ".join(ws) + rng.choice("...!?")


def clauses(g, rng, n, among=(), share=0.5):
    """About n words in clauses, some on a line of their own."""
    out, left, gap = [], n, rng.choice((" ", " ", "\n", "\n\n"))
    while left > 0:
        size = min(left, rng.randrange(2, 12))
        out.append(clause(g, rng, size, among if rng.random() < share else ()))
        left -= size
    return "".join(s + (gap if rng.random() < 0.3 else " ") for s in out).strip()


def some_text(g, rng, n, among=()):
    kind = rng.random()
    if among or kind < 0.5:
        return clauses(g, rng, n, among)
    ws = [word(g, rng) for _ in range(n)]
    if kind < 0.6:  # few words, many times: the place counts, not the word
        few = ws[: max(2, n // 4)]
        ws = [rng.choice(few) for _ in ws]
    return rng.choice((", ", " ", " ", "\n")).join(ws)


def copy_words(g, rng, most):
    text = some_text(g, rng, how_many(rng, most))
    return "copy", put(g, rng, rng.choice(("repeat", "repeat", "words_again")), text=text), text


def rename_words(g, rng, most):
    names = [invented_name(g, rng) for _ in range(rng.randrange(1, 4))]
    text = some_text(g, rng, how_many(rng, most) + 3, names)
    fit = [n for n in names if re.search(rf"\b{n}\b", text)]
    if not fit:
        return copy_words(g, rng, most)
    who, other = rng.choice(fit), invented_name(g, rng)
    return "rename", put(g, rng, "repeat_with", text=text, who=who, other=other), re.sub(rf"\b{who}\b", other, text)


def list_words(g, rng, most):
    names = [invented_name(g, rng) for _ in range(rng.randrange(2, 5))]
    text = some_text(g, rng, how_many(rng, most) + 6, names)
    who = rng.choice(names)
    lines = [s for s in sentences(text) if re.search(rf"\b{who}\b", s)]
    return "list", put(g, rng, "list_named", text=text, who=who), "\n".join(lines) or g.expand("none_named", rng, dict(who=who))


def nth_words(g, rng, most):
    text = some_text(g, rng, how_many(rng, most) + 3, [invented_name(g, rng)])
    parts = sentences(text)
    n, answer = rng.choice((("first", parts[0]), ("last", parts[-1])))
    return "copy", put(g, rng, "nth_sentence", text=text, n=n), answer


def pairs(g, rng, most):
    """Words that belong together at random, and what belongs to some of them: before the list, or behind it."""
    n = min(how_many(rng, most), 30)
    keys = list(dict.fromkeys(word(g, rng) for _ in range(n)))
    values = [word(g, rng) for _ in keys]
    mark = rng.choice((": ", " = ", " - ", " "))
    text = rng.choice(("\n", ", ", "; ")).join(k + mark + v for k, v in zip(keys, values))
    asked = rng.sample(range(len(keys)), rng.randrange(1, min(len(keys), 12) + 1))
    question, answer = (rng.choice(("\n", ", ")).join(found) for found in ([keys[i] for i in asked], [keys[i] + mark + values[i] for i in asked]))
    return "pairs", question + "\n\n" + text if rng.random() < 0.4 else text + "\n\n" + question, answer


DRILLS = (copy_words, copy_words, copy_words, rename_words, list_words, nth_words, pairs)


def drill(g, rng, most):
    return rng.choice(DRILLS)(g, rng, most)
