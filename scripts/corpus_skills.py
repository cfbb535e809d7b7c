"""What a conversation holds beside questions about a story: sums, order, opposites, spelling, small talk, copying.

Each function takes the grammar and a source of random numbers and returns (kind, question, answer). make_corpus.py calls them.
"""

import random
import re

from grammar import fix_articles, sentences

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
EVERY_NUMBER_PAIR = [(a, b) for a in range(101) for b in range(101 - a)]
HELD_OUT_PAIRS = {frozenset(p) for p in random.Random(7).sample(EVERY_NUMBER_PAIR, len(EVERY_NUMBER_PAIR) // 10)}


def numbers(g, rng, held_out=False):
    while True:
        a, b = EVERY_NUMBER_PAIR[int(rng.random() * len(EVERY_NUMBER_PAIR))]
        if (frozenset((a, b)) in HELD_OUT_PAIRS) == held_out:
            break
    if rng.random() < 0.5:
        q, x, y, r = "plus", a, b, a + b
    else:
        q, x, y, r = "minus", a + b, b, a
    return "arithmetic", g.expand("q_" + q, rng, b := dict(a=str(x), b=str(y), r=str(r))), g.expand("a_" + q, rng, b)


def short_numbers(g, rng):
    """A sum or a difference asked in few signs; one in eight lies outside of what the model claims to know."""
    if rng.random() < 0.125:
        b = dict(a=str(rng.randrange(120, 10 ** rng.choice((3, 4, 5)))), b=str(rng.randrange(20, 1000)))
        return "talk", g.expand("too_large", rng, b), g.expand("beyond_back", rng)
    _, question, answer = numbers(g, rng)
    a, sign, b = answer.split()[:3]
    return "arithmetic", g.expand("short_" + sign, rng, dict(a=a, b=b)), answer


def follows(g, rng):
    which = rng.choice((DAYS, MONTHS, None))
    if which is None:
        n = rng.randrange(1, 100)
        a, b = str(n), str(n + 1)
    else:
        i = rng.randrange(len(which))
        a, b = which[i], which[(i + 1) % len(which)]
    if rng.random() < 0.5:
        return "order", g.say("q_after", rng, dict(a=a)), g.say("a_after", rng, dict(a=a, b=b))
    return "order", g.say("q_before", rng, dict(a=b)), g.say("a_before", rng, dict(a=b, b=a))


def larger(g, rng):
    a, b = rng.sample(range(101), 2)
    bound = dict(a=str(a), b=str(b), r=str(max(a, b)))
    return "order", g.say("q_larger", rng, bound), g.say("a_larger", rng, bound)


def opposite(g, rng):
    a, b = rng.choice(g.rules["opposite"]).split("/")
    if rng.random() < 0.5:
        a, b = b, a
    return "opposite", g.say("q_opposite", rng, dict(a=a, b=b)), g.say("a_opposite", rng, dict(a=a, b=b))


def spell(g, rng):
    word = ""
    while not word.isalpha() or len(word) > 9:
        word = g.expand(rng.choice(("thing", "animal", "job", "place_at", "place_in", "container", "colour")), rng)
    b = dict(a=word, b=" ".join(word))
    return "spelling", g.say("q_spell", rng, b), g.expand("a_spell", rng, b)


def small_talk(g, rng):
    kind = rng.choice(("hello", "thanks", "bye", "how_are_you", "who_are_you", "what_can", "beyond", "beyond", "beyond"))
    b = dict(x=g.expand("thing", rng))
    return "talk", fix_articles(g.expand(kind, rng, b)), g.expand(kind + "_back", rng)


def abroad(g, rng):
    """A greeting in another language, a mood, or more of what the model does not know."""
    kind = rng.choice(("abroad", "abroad", "mood_bad", "mood_good", "beyond_more", "beyond_more", "beyond_more"))
    question = g.expand(kind, rng, dict(x=g.expand("thing", rng)))
    if kind == "abroad":
        question += g.expand("abroad_end", rng, dict(nothing=""))
        question = question.lower() if rng.random() < 0.2 else question
    return "talk", fix_articles(question), g.expand("beyond_back" if kind == "beyond_more" else kind + "_back", rng)


# ---- copying ----


def put(g, rng, rule, **bound):
    return g.expand(rule, rng, bound).replace("\\n", "\n")


def part_of(rng, text, n_bytes):
    """Sentences that stand together in the text, up to about n_bytes, with the text's own breaks between them."""
    parts = sentences(text)
    first = rng.randrange(len(parts))
    start = end = text.index(parts[first])
    for part in parts[first:]:
        at = text.index(part, end)
        if at + len(part) - start > n_bytes and end > start:
            break
        end = at + len(part)
    found = text[start:end]
    return found if rng.random() < 0.4 else " ".join(found.split())


def word_list(g, rng):
    kinds = ("thing", "animal", "colour", "job", "girl", "boy", "food", "place_at")
    found = [g.expand(rng.choice(kinds), rng) for _ in range(rng.randrange(2, 14))]
    return rng.choice((", ", " ", ", ", "\n")).join(found)


def copying(g, rng, text, names, stranger, n_bytes):
    """Something to be repeated from a text: names are those it may name, stranger one that it does not."""
    kind = rng.choices(("repeat", "words_again", "repeat_with", "list_named", "nth_sentence"), (6, 3, 3, 3, 1))[0]
    if kind == "words_again":
        text = word_list(g, rng)
        return "copy", put(g, rng, kind, text=text), text
    text = part_of(rng, text, n_bytes)
    if kind == "repeat":
        return "copy", put(g, rng, kind, text=text), text
    parts = sentences(text)
    if kind == "nth_sentence":
        n, answer = rng.choice((("first", parts[0]), ("last", parts[-1])))
        return "copy", put(g, rng, kind, text=text, n=n), answer
    there = [n for n in names if re.search(rf"\b{n}\b", text)]
    if kind == "list_named":
        who = rng.choice(there) if there and rng.random() < 0.9 else stranger
        lines = [s for s in parts if re.search(rf"\b{who}\b", s)]
        return "list", put(g, rng, kind, text=text, who=who), "\n".join(lines) or g.expand("none_named", rng, dict(who=who))
    if not there:
        return "copy", put(g, rng, "repeat", text=text), text
    who = rng.choice(there)
    return "rename", put(g, rng, kind, text=text, who=who, other=stranger), re.sub(rf"\b{who}\b", stranger, text)


SKILLS = (numbers, numbers, numbers, numbers, follows, larger, opposite, spell, small_talk, small_talk)
MORE_SKILLS = (numbers, numbers, numbers, short_numbers, short_numbers, follows, larger, opposite, spell, small_talk, small_talk,
               abroad, abroad)
