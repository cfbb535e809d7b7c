#!/usr/bin/env python3
"""Writes the text that the built-in model is trained on: stories, and conversations about them.

    scripts/make_corpus.py --seed 1 --bytes 250M -o corpus.txt
    scripts/make_corpus.py --seed 13 --bytes 12M --mix all-long -o long.txt
    scripts/make_corpus.py --questions 500 --seed 9      # held-out questions as JSON lines, for reading
    scripts/make_corpus.py --stories 3                   # three stories, for reading

The grammar stands in words.txt, turns.txt, facts.txt and talk.txt beside this file: words, sentences that carry no fact,
facts with the questions about them, and what is said around them. corpus_skills.py has what is no question about a story. A story is a handful of plots; each plot tells one or two facts and knows the
questions they answer. Documents begin with <|endoftext|>; conversations are ChatML. The same seed and size give the
same bytes, on any number of processes.

Held out, so that they can be asked for: the names of *_held_out, a tenth of the pairs of numbers (with sum and
difference), and an eighth of the two-hop templates: pairs of a first and a second sentence.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys

from corpus_skills import (DAYS, HELD_OUT_PAIRS, MONTHS, MORE_SKILLS, SKILLS, abroad, copying, numbers, short_numbers,
                           small_talk)
from corpus_drills import drill
from grammar import Grammar, fix_articles, words

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
BOUND = ("who other third he him his himself who_s a_kin kin x y c s place at_place job animal pet food colour feeling reason "
         "day a b r text n q nothing").split()
# Two-hop plots: the rule of the first fact and of the second.
TWO_HOP = {"there": ("go", "put_there"), "carried": ("take", "drop_at"), "inside": ("inside", "bring"),
           "given": ("give", "take_on"), "passed": ("give", "give_on"), "kin": ("kin_named", "go"),
           "job": ("job_is", "go"), "pet": ("pet_named", "pet_go"), "colour": ("colour_is", "same_colour"),
           "beside": ("y_is_at", "next_to")}
NEEDS_PRONOUN = {"there", "carried", "given", "passed"}  # "there", "it": the two sentences stand close together
# What a corpus is made of: shares of documents (the rest are skills), of long ones, of invented names; how many
# sentences without a fact follow a fact; how often a question is asked, in other words; at most how many in all.
MIXES = {
    "stories": dict(raw=0.29, conversation=0.54, long=0.08, invented=0.4, filler=(0.1, 0.3, 0.6, 1.0, 1.5), asks=1,
                    most=(6, 9, 12)),
    "questions": dict(raw=0.10, conversation=0.80, long=0.04, invented=0.4, filler=(0, 0.1, 0.2, 0.4, 1.0), asks=2,
                      most=(12, 18, 24)),
    # Of everything a little, the text of a question up to `bytes` long: the curriculum's three steps. `first` is the share of
    # questions in front of their text.
    "all-short": dict(raw=0.10, conversation=0.36, stories=0.20, copies=0.14, long=0, invented=0.4,
                      filler=(0, 0.1, 0.3, 0.6, 1.0), asks=1, most=(8, 12, 16), bytes=1400, copy_bytes=350),
    "all-middle": dict(raw=0.08, conversation=0.40, stories=0.20, copies=0.14, long=0, invented=0.4,
                       filler=(0, 0.1, 0.3, 0.6, 1.0), asks=1, most=(12, 18, 24), bytes=3200, copy_bytes=600),
    "all-long": dict(raw=0.06, conversation=0.42, stories=0.20, copies=0.14, long=0, invented=0.4,
                     filler=(0, 0.1, 0.3, 0.6, 1.0), asks=1, most=(16, 24, 32), bytes=6000, copy_bytes=800),
    # What the three taught least: short copies and questions in front, among the rest.
    "all-again": dict(raw=0.06, conversation=0.40, stories=0.14, copies=0.26, first=0.5, long=0, invented=0.4,
                      filler=(0, 0.1, 0.3, 0.6, 1.0), asks=1, most=(8, 12, 16), bytes=2400, copy_bytes=250),
    # What teaches looking back: random words to copy and look up, many short texts with the question on either side.
    # `drill` is the most words of one. Then the same among longer texts.
    "back-short": dict(raw=0.02, conversation=0.16, stories=0.05, copies=0.16, drills=0.30, turns=0.20, first=0.4, long=0, invented=0.4,
                       filler=(0, 0, 0.1, 0.3, 0.8), asks=1, most=(16, 24, 32), bytes=900, copy_bytes=300, drill=40),
    "back-long": dict(raw=0.10, conversation=0.28, stories=0.10, copies=0.14, drills=0.10, turns=0.14, first=0.4, long=0, invented=0.4,
                      filler=(0, 0.1, 0.3, 0.6, 1.0), asks=1, most=(16, 24, 32), bytes=2400, copy_bytes=500, drill=80),
    # Then texts up to the context, few drills, and every other task.
    "look-long": dict(raw=0.08, conversation=0.34, stories=0.10, copies=0.14, drills=0.10, turns=0.16, first=0.4, long=0, invented=0.4,
                      filler=(0, 0.1, 0.3, 0.6, 1.0, 1.5), asks=1, most=(12, 18, 24), bytes=4000, copy_bytes=500, drill=80),
    "look-all": dict(raw=0.10, conversation=0.40, stories=0.12, copies=0.10, drills=0.04, turns=0.14, first=0.4, long=0, invented=0.4,
                     filler=(0, 0.1, 0.3, 0.6, 1.0, 1.5), asks=1, most=(8, 12, 20), bytes=6000, copy_bytes=600, drill=80),
    # Many questions about short texts: in the mixes above there are four times fewer in as many tokens.
    "look-ask": dict(raw=0.05, conversation=0.55, stories=0.05, copies=0.03, turns=0.24, first=0.4, long=0, invented=0.4,
                     filler=(0, 0.1, 0.3, 0.6, 1.0, 1.5), asks=1, most=(16, 24, 32), bytes=1600, copy_bytes=400, unknown=0.3),
    # Dense questions from the first token on, and every other task to the last: short texts, then longer ones.
    "ask-short": dict(raw=0.05, conversation=0.38, stories=0.06, copies=0.14, drills=0.14, turns=0.15, first=0.4, long=0, invented=0.6,
                      filler=(0, 0.1, 0.3, 0.6, 1.0, 1.5), asks=1, most=(12, 18, 24), bytes=1200, copy_bytes=450, drill=50, unknown=0.3),
    "ask-long": dict(raw=0.04, conversation=0.52, stories=0.05, copies=0.05, drills=0.07, turns=0.20, first=0.4, long=0, invented=0.6,
                     filler=(0, 0.1, 0.3, 0.6, 1.0, 1.5), asks=1, most=(12, 18, 24), bytes=3000, copy_bytes=500, drill=60, unknown=0.5),
}
MIX = MIXES["stories"]
LONGEST = 7000  # bytes of a document: about 1700 tokens, so that it fits the context


def load_grammar():
    g = Grammar(*(os.path.join(HERE, f) for f in ("words.txt", "turns.txt", "facts.txt", "talk.txt")))
    g.check(BOUND)
    g.held_out = set(g.rules["girl_held_out"] + g.rules["boy_held_out"])
    return g


def template_is_held_out(plot, first, second):
    return (list(TWO_HOP).index(plot) * 5 + first * 3 + second) % 8 == 0


class Person:
    def __init__(self, name, male):
        self.name, self.male = name, male
        self.he, self.him, self.his = ("he", "him", "his") if male else ("she", "her", "her")
        self.told = set()  # the kinds of fact that the story has told of this person

    def bound(self, pronoun=False):
        who = self.he if pronoun else self.name
        return dict(who=who, who_s=self.his if pronoun else self.name + "'s", he=self.he, him=self.him, his=self.his,
                    himself=self.him + "self")


class Thing:
    def __init__(self, noun, adjective, colour):
        self.noun, self.adjective, self.colour = noun, adjective, colour
        self.coloured = colour is not None  # the colour is part of what it is called
        self.told = set()

    def called(self, rng, full=False):
        words = [self.adjective] if self.adjective and (full or rng.random() < 0.4) else []
        if self.coloured:
            words.append(self.colour)
        return " ".join(words + [self.noun])


class Story:
    """Paragraphs in order, and questions with answers: (kind, question, answer)."""

    def __init__(self, g, rng, held_out=False, apart=False, filler=0.8, used=None):
        self.g, self.rng, self.held_out, self.apart, self.filler = g, rng, held_out, apart, filler
        self.used = used if used is not None else set()
        self.cast, self.things, self.paragraphs, self.questions = [], [], [], []

    # ---- the world: nothing is drawn twice ----

    def draw(self, rule):
        alts = self.g.rules[rule]
        while True:
            word = alts[int(self.rng.random() * len(alts))]
            if word not in self.used:
                self.used.add(word)
                return word

    def invented(self, male):
        """The beginning of one name and the end of another: names must be copied, not known."""
        names = self.g.rules["boy" if male else "girl"]
        while True:
            a, b = self.rng.choice(names), self.rng.choice(names)
            name = a[: self.rng.randrange(2, len(a))] + b[self.rng.randrange(1, len(b) - 1) :]
            if name not in self.used and len(name) < 10 and name not in self.g.held_out:
                self.used.add(name)
                return name

    def person(self, male=None):
        male = self.rng.random() < 0.5 if male is None else male
        held_out = "boy_held_out" if male else "girl_held_out"
        if self.held_out and not self.used.issuperset(self.g.rules[held_out]):  # a long text may need more of them
            name = self.draw(held_out)
        elif self.rng.random() < MIX["invented"]:
            name = self.invented(male)
        else:
            name = self.draw("boy" if male else "girl")
        p = Person(name, male)
        self.cast.append(p)
        return p

    def someone(self, *untold, male=None):
        """A person of the story of whom none of these facts is told yet, or a new one."""
        fit = [p for p in self.cast if not p.told & set(untold) and (male is None or p.male == male)]
        p = self.rng.choice(fit) if fit and (self.rng.random() < 0.5 or len(self.cast) > 3) else self.person(male)
        p.told |= set(untold)
        return p

    def thing(self, coloured=None):
        coloured = self.rng.random() < 0.55 if coloured is None else coloured
        twins = [t for t in self.things if t.coloured and "twin" not in t.told]
        if coloured and twins and self.rng.random() < 0.3:  # the red cup beside the blue one
            other = self.rng.choice(twins)
            other.told.add("twin")
            colour = self.rng.choice([c for c in self.g.rules["colour"] if c != other.colour])
            t = Thing(other.noun, None, colour)
            t.told.add("twin")
        else:
            adjective = self.g.expand("adj_thing", self.rng) if self.rng.random() < 0.3 else None
            t = Thing(self.draw("thing"), adjective, self.rng.choice(self.g.rules["colour"]) if coloured else None)
        self.things.append(t)
        return t

    def place(self):
        counts = [len(self.g.rules["place_" + p]) for p in ("at", "in", "on")]
        preposition = self.rng.choices(("at", "in", "on"), counts)[0]
        noun = self.draw("place_" + preposition)
        return dict(place="the " + noun, at_place=f"{preposition} the {noun}")

    # ---- sentences ----

    def say(self, rule, choice=None, **bound):
        return self.g.say(rule, self.rng, bound, choice)

    def ask(self, kind, q, a, **bound):
        asked = [self.say(q, **bound) for _ in range(MIX["asks"])]
        answer = self.say(a, **bound)
        self.questions += [(kind, question, answer) for question in asked]

    def pair(self, plot):
        """A first and a second sentence: a pair that is held out, or one that is not."""
        first, second = TWO_HOP[plot]
        while True:
            i, j = int(self.rng.random() * self.g.size(first)), int(self.rng.random() * self.g.size(second))
            if template_is_held_out(plot, i, j) == self.held_out:
                return i, j

    def fill(self, p, others=()):
        """A sentence without a fact, about p, who has just been named."""
        kind = self.rng.choices(("turn", "speech", "thought", "scene", "beast", "meeting"), (8, 5, 3, 3, 2, 2))[0]
        if kind == "meeting" and not others:
            kind = "turn"
        bound = p.bound(pronoun=self.rng.random() < 0.7)
        if kind == "meeting":
            bound["other"] = self.rng.choice(others).name
        text = self.say(kind, **bound)
        if kind == "speech" and self.rng.random() < 0.3:
            text += " " + self.say("quote")
        return text

    def paragraph(self, facts, p=None, lead=True):
        out, intro = [], p and not p.told & {"intro"}
        if lead and self.rng.random() < self.filler * 0.3:
            out.append(self.say(self.rng.choice(("scene", "scene", "day_was"))))
        if intro:
            p.told.add("intro")
            if self.held_out or self.rng.random() < 0.5:
                out.append(self.say("intro_boy" if p.male else "intro_girl", who=p.name))
        for fact in facts:
            out.append(fact)
            while p and self.rng.random() < self.filler / (1 + self.filler):
                out.append(self.fill(p, [o for o in self.cast if o is not p and "intro" in o.told]))
        self.paragraphs.append(out)

    # ---- plots of one fact ----

    def plot_find(self):
        p, t = self.someone("find", "hold"), self.thing()
        x = t.called(self.rng, full=True)
        where = self.place() if "go" not in p.told else {}
        if where:
            p.told.add("go")
            facts = [self.say("find", self.rng.randrange(2), x=x, **p.bound(), **where)]
        else:
            facts = [self.say("find", self.rng.randrange(2, self.g.size("find")), x=x, **p.bound())]
        t.told |= {"where", "find"}
        self.ask("one", "q_who_find", "a_who_find", x=t.called(self.rng), **p.bound())
        self.ask("one", "q_what_find", "a_what_find", x=x, **p.bound())
        self.tell_colour(t, facts)
        self.paragraph(facts, p)

    def tell_colour(self, t, facts):
        """Asks for the colour that its name carried, or tells it."""
        if "twin" in t.told or "colour" in t.told:
            return
        if not t.coloured and self.rng.random() < 0.3:
            t.colour = self.rng.choice(self.g.rules["colour"])
            choice = self.rng.choice((0, 2, 3))
            facts.append(self.say("colour_is", choice, x=t.called(self.rng), colour=t.colour))
        if t.colour:
            t.told.add("colour")
            t.told.add("twin")  # no second of its kind: it is asked for without its colour
            self.ask("one", "q_colour", "a_colour", x=t.noun, colour=t.colour)

    def plot_put(self):
        p, t = self.someone("put"), self.thing()
        full, x = t.called(self.rng, full=True), t.called(self.rng)
        t.told.add("where")
        if self.rng.random() < 0.5:
            rule, a, b = "put_in", "a_put_in", dict(c=self.draw("container"))
        else:
            rule, a, b = "put_on", "a_put_on", dict(s=self.draw("surface"))
        self.paragraph([self.say(rule, x=full, **p.bound(), **b)], p)
        self.ask("one", "q_where_put", a, x=x, **p.bound(), **b)

    def plot_give(self):
        p, o, t = self.someone("give", "hold"), self.someone("got", "hold"), self.thing()
        t.told.add("where")
        facts = [self.say("give", x=t.called(self.rng, full=True), other=o.name, **p.bound())]
        x = t.called(self.rng)
        self.ask("one", "q_who_gave", "a_who_gave", x=x, other=o.name, **p.bound())
        self.ask("one", "q_got", "a_got", x=x, other=o.name, **p.bound())
        self.ask("one", "q_holder", "a_holder", x=x, other=o.name)
        self.tell_colour(t, facts)
        self.paragraph(facts, p)

    def plot_feel(self):
        p = self.someone("feel")
        good = self.rng.choice(("good", "bad"))
        feeling = self.draw("feeling_" + good)
        b = dict(p.bound(), feeling=feeling, other=self.rng.choice(self.cast).name)
        if b["other"] == p.name:
            b["other"] = self.person().name
        reason = fix_articles(self.g.expand("reason_" + good, self.rng, b))
        self.paragraph([self.say("feel", reason=reason, **b)], p)
        self.ask("one", "q_why", "a_why", reason=reason, **b)
        if self.rng.random() < 0.4:
            self.ask("one", "q_how", "a_how", **b)

    def plot_job(self):
        p, job = self.someone("job"), self.draw("job")
        self.paragraph([self.say("job_is", job=job, **p.bound())], p)
        self.ask("one", "q_job", "a_job", job=job, **p.bound())
        self.ask("one", "q_who_job", "a_who_job", job=job, **p.bound())

    def plot_pet(self):
        p, b = self.someone("pet"), dict(animal=self.draw("animal"), pet=self.draw("pet_name"))
        self.paragraph([self.say("pet_named", **b, **p.bound())], p)
        self.ask("one", "q_pet", "a_pet", **b)
        self.ask("one", "q_who_pet", "a_who_pet", **b, **p.bound())

    def plot_kin(self):
        p, o, kin = self.kin()
        self.paragraph([self.say("kin_named", kin=kin, a_kin="a " + kin, other=o.name, **p.bound())], p)
        self.ask("one", "q_kin", "a_kin", kin=kin, other=o.name, **p.bound())

    def kin(self):
        p = self.someone("kin")
        male = self.rng.random() < 0.5
        o = self.person(male)
        o.told |= {"go", "kin", "intro"}
        return p, o, self.draw("kin_m" if male else "kin_f")

    def plot_food(self):
        p, food = self.someone("food"), self.draw("food")
        self.paragraph([self.say("likes", food=food, **p.bound())], p)
        self.ask("one", "q_food", "a_food", food=food, **p.bound())

    def plot_has(self):
        p, t = self.someone("has"), self.thing()
        facts = [self.say("has", x=t.called(self.rng, full=True), **p.bound())]
        self.ask("one", "q_has", "a_has", x=t.called(self.rng), **p.bound())
        self.tell_colour(t, facts)
        self.paragraph(facts, p)

    def plot_go(self):
        p, where = self.someone("go"), self.place()
        if self.rng.random() < 0.5:
            day = self.rng.choice(DAYS)
            self.paragraph([self.say("time_go", day=day, **where, **p.bound())], p)
            self.ask("one", "q_when", "a_when", day=day, **where, **p.bound())
        else:
            self.paragraph([self.say("go", **where, **p.bound())], p)
        self.ask("one", "q_go", "a_go", **where, **p.bound())

    # ---- plots of two facts, in two paragraphs ----

    def second(self, p):
        """How the second paragraph calls p: by a pronoun, unless other stories may stand between."""
        b = p.bound(pronoun=not self.apart)
        if self.apart:
            b["he"] = p.name
        return b

    def two_there(self):
        p, where, t = self.someone("go"), self.place(), self.thing()
        i, j = self.pair("there")
        self.paragraph([self.say("go", i, **where, **p.bound())], p)
        self.paragraph([self.say("put_there", j, x=t.called(self.rng, full=True), **self.second(p))], p, lead=False)
        t.told.add("where")
        self.ask("two", "q_where", "a_where", x=t.called(self.rng), **where)
        self.ask("one", "q_go", "a_go", **where, **p.bound())

    def two_carried(self):
        p, where, t = self.someone("go", "hold"), self.place(), self.thing()
        i, j = self.pair("carried")
        self.paragraph([self.say("take", i, x=t.called(self.rng, full=True), **p.bound())], p)
        self.paragraph([self.say("drop_at", j, **where, **self.second(p))], p, lead=False)
        t.told.add("where")
        self.ask("two", "q_where", "a_where", x=t.called(self.rng), **where)

    def two_inside(self):
        p, where, t, c = self.someone("go", "put"), self.place(), self.thing(), self.draw("container")
        i, j = self.pair("inside")
        self.paragraph([self.say("inside", i, x=t.called(self.rng, full=True), c=c, **p.bound())], p)
        self.paragraph([self.say("bring", j, c=c, **where, **self.second(p))], p, lead=False)
        t.told.add("where")
        self.ask("two", "q_where", "a_where", x=t.called(self.rng), **where)

    def two_given(self):
        p, t, where = self.someone("give", "hold"), self.thing(), self.place()
        o = self.someone("got", "go", "hold", male=not p.male)
        i, j = self.pair("given")
        x = t.called(self.rng, full=True)
        self.paragraph([self.say("give", i, x=x, other=o.name, **p.bound())])
        p.told.add("intro")
        self.paragraph([self.say("take_on", j, **where, **self.second(o))], lead=False)
        t.told.add("where")
        self.ask("two", "q_where", "a_where", x=t.called(self.rng), **where)
        self.ask("one", "q_got", "a_got", x=t.called(self.rng), other=o.name, **p.bound())

    def two_passed(self):
        p, t = self.someone("give", "hold"), self.thing()
        o, third = self.someone("got", "give", "hold", male=not p.male), self.someone("got", "hold")
        i, j = self.pair("passed")
        self.paragraph([self.say("give", i, x=t.called(self.rng, full=True), other=o.name, **p.bound())])
        p.told.add("intro")
        self.paragraph([self.say("give_on", j, third=third.name, **self.second(o))], lead=False)
        t.told.add("where")
        self.ask("two", "q_holder", "a_holder", x=t.called(self.rng), other=third.name)

    def two_kin(self):
        p, o, kin = self.kin()
        where = self.place()
        i, j = self.pair("kin")
        self.paragraph([self.say("kin_named", i, kin=kin, a_kin="a " + kin, other=o.name, **p.bound())], p)
        whose = p.name + "'s" if self.apart else p.his
        self.paragraph([self.say("go", j, **where, **dict(o.bound(), who=f"{whose} {kin}"))], o, lead=False)
        self.ask("two", "q_go", "a_go", **where, **o.bound())
        self.ask("one", "q_kin", "a_kin", kin=kin, other=o.name, **p.bound())

    def two_job(self):
        p, job, where = self.someone("job", "go"), self.draw("job"), self.place()
        i, j = self.pair("job")
        self.paragraph([self.say("job_is", i, job=job, **p.bound())], p)
        self.paragraph([self.say("go", j, **where, **dict(p.bound(), who="the " + job))], p, lead=False)
        self.ask("two", "q_go", "a_go", **where, **p.bound())
        self.ask("one", "q_job", "a_job", job=job, **p.bound())

    def two_pet(self):
        p, b, where = self.someone("pet"), dict(animal=self.draw("animal"), pet=self.draw("pet_name")), self.place()
        i, j = self.pair("pet")
        self.paragraph([self.say("pet_named", i, **b, **p.bound())], p)
        self.paragraph([self.say("pet_go", j, **b, **where)], lead=False)
        self.ask("two", "q_where_pet", "a_where_pet", **b, **where)
        self.ask("one", "q_pet", "a_pet", **b)

    def two_colour(self):
        p, y, x = self.someone(), self.thing(coloured=False), self.thing(coloured=False)
        y.colour = self.rng.choice(self.g.rules["colour"])
        i, j = self.pair("colour")
        self.paragraph([self.say("colour_is", i, x=y.called(self.rng), colour=y.colour, **p.bound())])
        self.paragraph([self.say("same_colour", j, x=x.called(self.rng), y=y.noun, **p.bound())], lead=False)
        x.told.add("colour")
        y.told.add("colour")
        self.ask("two", "q_colour", "a_colour", x=x.noun, colour=y.colour)
        self.ask("one", "q_colour", "a_colour", x=y.noun, colour=y.colour)

    def two_beside(self):
        p, y, x, where = self.someone("go"), self.thing(coloured=False), self.thing(), self.place()
        i, j = self.pair("beside")
        self.paragraph([self.say("y_is_at", i, y=y.called(self.rng), **where, **p.bound())])
        full = x.called(self.rng, full=True)
        self.paragraph([self.say("next_to", j, x=full, y=y.noun, **p.bound())], lead=False)
        x.told.add("where")
        y.told.add("where")
        self.ask("two", "q_where", "a_where", x=x.called(self.rng), **where)
        self.ask("one", "q_where", "a_where", x=y.noun, **where)

    # ---- what the story does not say ----

    def ask_unknown(self):
        a, rng = "a_unknown", self.rng
        kind = rng.choice(("person", "person", "thing", "stranger", "absent", "colour"))
        if kind == "thing":
            fit = [t for t in self.things if "where" not in t.told]
            if fit:
                return self.ask("unknown", "q_where", a, x=rng.choice(fit).called(rng))
        if kind == "colour":
            fit = [t for t in self.things if "colour" not in t.told and not t.colour]
            if fit:
                return self.ask("unknown", "q_colour", a, x=rng.choice(fit).noun)
        if kind == "person":
            p = rng.choice(self.cast)
            asks = {"find": "q_what_find", "go": "q_go", "job": "q_job", "food": "q_food", "kin": "q_kin", "feel": "q_why"}
            fit = [q for told, q in asks.items() if told not in p.told]
            if fit:
                b = dict(kin=self.g.expand(rng.choice(("kin_m", "kin_f")), rng),
                         feeling=self.g.expand(rng.choice(("feeling_good", "feeling_bad")), rng))
                return self.ask("unknown", rng.choice(fit), a, **b, **p.bound())
        noun = self.draw("thing")
        if kind == "stranger":
            p = self.person()
            self.cast.pop()
            q = rng.choice(("q_go", "q_what_find", "q_job", "q_food", "q_how", "q_where_put"))
            return self.ask("unknown", q, a, x=noun, **p.bound())
        colour = rng.choice(self.g.rules["colour"]) + " " if rng.random() < 0.3 else ""
        q = rng.choice(("q_where", "q_who_find", "q_has", "q_holder") + (() if colour else ("q_colour",)))
        return self.ask("unknown", q, a, x=colour + noun)

    # ---- whole stories ----

    def add_plots(self, n, two_hop):
        ones = ["find", "put", "give", "feel", "job", "pet", "kin", "food", "has", "go"]
        twos = [t for t in TWO_HOP if not (self.apart and t in NEEDS_PRONOUN)]
        plots = []
        for _ in range(n):
            two = self.rng.random() < two_hop
            plots.append("two_" + self.rng.choice(twos) if two else "plot_" + self.rng.choice(ones))
        for plot in plots:
            getattr(self, plot)()
        return self

    def text(self):
        return "\n\n".join(" ".join(p) for p in self.paragraphs)


def tell(g, rng, n=None, held_out=False):
    """A story to be read as such: somebody, what happened, an end."""
    s = Story(g, rng, held_out, filler=rng.uniform(0.8, 2.2))
    p = s.person()
    p.told.add("intro")
    first = [s.say("intro_boy" if p.male else "intro_girl", who=p.name)]
    if rng.random() < 0.4:
        first = [s.say("opening", **p.bound())]
        p.told.add("job")
    s.paragraph(first, p)
    s.add_plots(n or rng.choice((1, 2, 2, 3, 3, 4) if rng.random() > MIX["long"] else (7, 9, 11)), 0.4)
    last = [s.fill(p, [o for o in s.cast if o is not p]), s.say("ending", **p.bound())]
    if rng.random() < 0.4:
        last.append(s.say("moral"))
    first = rng.choice(("turn", "meeting" if len(s.cast) > 1 else "turn"))
    last.insert(0, s.say(first, other=rng.choice(s.cast[1:] or [p]).name, **p.bound()))
    s.paragraphs.append(last)
    return s


def to_ask_about(g, rng, held_out=False, two_hop=0.55, unknown=0.25):
    """A text with questions: one story in its order, or paragraphs of several."""
    used, apart, long = set(), rng.random() < 0.3, rng.random() < MIX["long"]
    filler = 2 if long else rng.choice(MIX["filler"])
    stories = [Story(g, rng, held_out, apart, filler, used) for _ in range(rng.choice((2, 2, 3)) if apart else 1)]
    for s in stories:
        n = rng.choice((1, 2)) if apart else rng.choice((1, 2, 3, 3, 4, 5))
        s.add_plots(n + 4 * long, two_hop)
    questions = [q for s in stories for q in s.questions]
    n_unknown = sum(rng.random() < unknown for _ in range(1 + len(questions)))
    if len(stories) == 1:  # what one story leaves open another may tell
        for _ in range(n_unknown):
            stories[0].ask_unknown()
    else:
        for _ in range(n_unknown):
            s = stories[0]
            noun, q = s.draw("thing"), rng.choice(("q_where", "q_who_find", "q_has", "q_colour"))
            s.ask("unknown", q, "a_unknown", x=noun)
    order = [i for i, s in enumerate(stories) for _ in s.paragraphs]
    rng.shuffle(order)
    rest = [iter(s.paragraphs) for s in stories]
    text = "\n\n".join(" ".join(next(rest[i])) for i in order)
    seen, questions = set(), [q for s in stories for q in s.questions]
    rng.shuffle(questions)
    questions = [q for q in questions if not (q[1] in seen or seen.add(q[1]))]
    return text, questions


# ---- stories that somebody asks for ----


def ask_for_story(g, rng):
    s = tell(g, rng, n=rng.choice((1, 1, 2)))
    question = g.expand("ask_story", rng) if rng.random() < 0.5 else g.expand("ask_story_of", rng, dict(who=s.cast[0].name))
    return "story", question, s.text()


def topics(g, rng, s):
    """What a story is about: its people, or a thing or an animal in it."""
    first, text = s.cast[0], set(words(s.text()))
    found = [first.name] * 4 + ["a boy" if first.male else "a girl"]
    if len(s.cast) > 1:
        found.append(f"{first.name} and {s.cast[1].name}")
    found += [fix_articles("a " + t.called(rng)) for t in s.things[:2]]
    found += [fix_articles("a " + a) for kind in ("animal", "job") for a in g.rules[kind] if a in text][:2]
    return found


def story_with_opening(g, rng):
    """A story that somebody began: (what stands there, the whole story)."""
    s = tell(g, rng, n=rng.choice((1, 1, 2, 2, 3)))
    lines, p = s.paragraphs, s.cast[0]
    if rng.random() < 0.35:  # an opening that the stories themselves have not
        lines[0][0] = s.say("long_ago_boy" if p.male else "long_ago_girl", **p.bound())
    elif rng.random() < 0.5:  # the one that everybody types
        while not lines[0][0].startswith("Once upon a time"):
            lines[0][0] = s.say("intro_boy" if p.male else "intro_girl", who=p.name)
    first, text = lines[0][0].split(" "), s.text()
    cut = rng.random()
    if cut < 0.6:
        n = 4 if text.startswith("Once upon a time") and rng.random() < 0.7 else rng.randrange(1, len(first))
        opening = " ".join(first[: max(n, min(2, len(first) - 1))]).rstrip(",.") + g.expand("dots", rng, dict(nothing=""))
        opening = opening.lower() if rng.random() < 0.1 else opening
    else:
        opening = " ".join(" ".join(first) if i == 0 else f for i, f in enumerate(lines[0][: rng.choice((1, 1, 2))]))
    if rng.random() < 0.15:
        opening = g.expand("go_on", rng, dict(text=opening)).replace("\\n", "\n")
    return opening, s


def chat_of_stories(g, rng):
    """One or two stories, asked for or begun, and now and then a question about what was told."""
    turns = []
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.random()
        if kind < 0.5:
            question, s = story_with_opening(g, rng)
        else:
            s = tell(g, rng, n=rng.choice((1, 1, 2, 2, 3)))
            who = rng.choice(topics(g, rng, s))
            question = (g.expand("story_of", rng, dict(who=who)) if kind < 0.75 else
                        g.expand(rng.choice(("story_any", "ask_story")), rng))
        turns.append((question, s.text()))
        if rng.random() < 0.3:
            turns += [q[1:] for q in rng.sample(s.questions, min(len(s.questions), rng.choice((1, 2, 4))))]
        elif rng.random() < 0.2:
            turns.append(rng.choice(MORE_SKILLS)(g, rng)[1:])
    return turns


# ---- long texts and copies ----


def much_to_ask_about(g, rng, n_bytes, held_out=False, two_hop=0.55, unknown=None):
    """As to_ask_about, from as many stories as make up n_bytes: one after the other, or paragraph by paragraph."""
    used, apart, stories, size = set(), rng.random() < 0.4, [], 0
    unknown = unknown or MIX.get("unknown", 0.2)
    while not stories or size < 0.85 * n_bytes:
        s = Story(g, rng, held_out, apart, rng.choice(MIX["filler"]), used)
        stories.append(s.add_plots(rng.choice((1, 1, 2, 2, 3)), two_hop))
        size += len(s.text()) + 2
    for s in stories:
        for _ in range(sum(rng.random() < unknown for _ in range(1 + len(s.questions)))):
            s.ask_unknown()
    order = [i for i, s in enumerate(stories) for _ in s.paragraphs]
    if apart:
        rng.shuffle(order)
    rest = [iter(s.paragraphs) for s in stories]
    text = "\n\n".join(" ".join(next(rest[i])) for i in order)
    questions = list({q[1]: q for s in stories for q in s.questions}.values())
    rng.shuffle(questions)
    return text, questions, [p for s in stories for p in s.cast]


def size_of_text(rng, most):
    """Bytes: short texts as often as long ones, seen on a scale of ratios."""
    return int(150 * (most / 150) ** rng.random())


def to_copy(g, rng, held_out=False, n_bytes=None):
    n_bytes = n_bytes or size_of_text(rng, MIX["copy_bytes"])
    text, _, cast = much_to_ask_about(g, rng, n_bytes, held_out)
    used = set(words(text))
    stranger = next(p for p in (Story(g, rng, held_out).person(cast[0].male) for _ in range(99)) if p.name not in used)
    return copying(g, rng, text, [p.name for p in cast], stranger.name, n_bytes)


def long_conversation(g, rng):
    text, questions, _ = much_to_ask_about(g, rng, size_of_text(rng, MIX["bytes"]))
    turns = [q[1:] for q in questions[: rng.choice(MIX["most"])]]
    first, answer = turns[0]
    if rng.random() < MIX.get("first", 0.3):
        turns[0] = g.expand("ask_first", rng, dict(q=first, text=text)).replace("\\n", "\n"), answer
    else:
        turns[0] = with_text(g, rng, text, first), answer
    while rng.random() < 0.2:
        turns.insert(rng.randrange(1, len(turns) + 1), rng.choice(MORE_SKILLS)(g, rng)[1:])
    return turns


def short_texts(g, rng):
    """Turns of which each has a text of its own: one question before it or behind it, or several that are answered in lines."""
    turns = []
    for _ in range(rng.choice((3, 4, 6))):
        text, questions, _ = much_to_ask_about(g, rng, size_of_text(rng, MIX["bytes"] // 2), unknown=0.3)
        asked = questions[: 1 if rng.random() < 0.6 else rng.choice((2, 3, 5))]
        form = "ask_first" if rng.random() < 0.6 else "ask_behind"
        question = g.expand(form, rng, dict(q="\\n".join(q for _, q, _ in asked), text=text)).replace("\\n", "\n")
        turns.append((question, "\n".join(a for _, _, a in asked)))
    return turns


# ---- documents ----


def chat(system, turns):
    out = [f"{IM_START}system\n{system}{IM_END}\n"] if system else []
    for question, answer in turns:
        out.append(f"{IM_START}user\n{question}{IM_END}\n{IM_START}assistant\n{answer}{IM_END}\n")
    return "".join(out)


def with_text(g, rng, text, question):
    return (g.expand("read", rng) + "\n\n" if rng.random() < 0.4 else "") + text + "\n\n" + question


def conversation(g, rng):
    text, questions = to_ask_about(g, rng)
    turns = [q[1:] for q in questions[: rng.choice(MIX["most"])]]
    turns[0] = (with_text(g, rng, text, turns[0][0]), turns[0][1])
    while rng.random() < 0.2:
        turns.insert(rng.randrange(1, len(turns) + 1), rng.choice(SKILLS)(g, rng)[1:])
    return turns


def talk(g, rng):
    """A few turns of what people say first."""
    kinds = (small_talk, abroad, abroad, short_numbers)
    return [rng.choice(kinds)(g, rng)[1:] for _ in range(rng.choice((1, 1, 2, 4)))]


def skills(g, rng):
    if "bytes" in MIX and rng.random() < 0.4:
        return talk(g, rng)
    kinds = [numbers] if rng.random() < 0.4 else MORE_SKILLS if "bytes" in MIX else SKILLS
    turns = [rng.choice(kinds)(g, rng)[1:] for _ in range(rng.choice((1, 4, 10, 16, 24)))]
    if rng.random() < 0.3:
        turns.insert(rng.randrange(len(turns) + 1), ask_for_story(g, rng)[1:])
    return turns


def document(g, rng):
    while True:
        text = any_document(g, rng)
        if len(text) <= LONGEST:
            return text


def any_document(g, rng):
    kind = rng.random()
    if kind < MIX["raw"]:
        return BEGIN + tell(g, rng).text()
    system = g.expand("system", rng) if rng.random() < 0.7 else None
    turns = turns_of(g, rng, kind - MIX["raw"])
    return BEGIN + chat(system, turns)


def turns_of(g, rng, kind):
    if kind < MIX["conversation"]:
        return (long_conversation if "bytes" in MIX else conversation)(g, rng)
    kind -= MIX["conversation"]
    for name, turns in (("stories", chat_of_stories), ("copies", copies), ("drills", drills), ("turns", short_texts)):
        if kind < MIX.get(name, 0):
            return turns(g, rng)
        kind -= MIX.get(name, 0)
    return skills(g, rng)


def copies(g, rng):
    return [to_copy(g, rng)[1:] for _ in range(rng.choice((1, 2, 3)))]


def drills(g, rng):
    return [drill(g, rng, MIX["drill"])[1:] for _ in range(rng.choice((2, 4, 6)))]


def held_out_questions(g, seed, n, kinds=("one", "two", "unknown", "arithmetic")):
    """n questions, each kind as often: dicts of kind, prompt, answer; one question a prompt."""
    rng, out = random.Random(f"questions {seed}"), []
    while len(out) < n:
        kind = kinds[len(out) % len(kinds)]
        if kind == "arithmetic":
            _, prompt, answer = numbers(g, rng, held_out=True)
        else:
            text, questions = to_ask_about(g, rng, held_out=True)
            fit = [q for q in questions if q[0] == kind]
            if not fit:
                continue
            _, question, answer = rng.choice(fit)
            prompt = text + "\n\n" + question
        out.append(dict(kind=kind, prompt=prompt, answer=answer))
    return out


# ---- the command ----

CHUNK = 500  # documents made from one seed of their own, so that any process can make them
GRAMMAR = None


def chunk(job):
    global GRAMMAR, MIX
    GRAMMAR = GRAMMAR or load_grammar()
    seed, i, mix = job
    MIX = MIXES[mix]
    rng = random.Random(f"{seed}:{i}")
    return "".join(document(GRAMMAR, rng) for _ in range(CHUNK))


def cut_to(text, room):
    """The text's bytes, at most `room`; a character that the end would break becomes line feeds."""
    data = text.encode()
    if len(data) <= room:
        return data
    return data[:room].decode(errors="ignore").encode().ljust(room, b"\n")


def write_corpus(out, seed, n_bytes, mix):
    done = 0
    with multiprocessing.Pool() as pool:
        for first in range(0, 1 << 30, 32):
            for text in pool.imap(chunk, [(seed, i, mix) for i in range(first, first + 32)]):
                data = cut_to(text, n_bytes - done)
                out.write(data)
                done += len(data)
            if sys.stderr.isatty():
                print(f"\r{done / 1e6:.0f} of {n_bytes / 1e6:.0f} MB ", end="", file=sys.stderr)
            if done >= n_bytes:
                break
    if sys.stderr.isatty():
        print(file=sys.stderr)


def size(text):
    unit = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], None)
    return int(float(text[:-1]) * unit) if unit else int(text)


def main():
    parser = argparse.ArgumentParser(description="Writes the training text of the built-in model.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bytes", type=size, default=size("1M"), help="how much text, 250M for instance")
    parser.add_argument("--mix", choices=MIXES, default="stories", help="mostly stories, or short texts with many questions")
    parser.add_argument("-o", "--output", help="file to write (stdout)")
    parser.add_argument("--questions", type=int, metavar="N", help="instead: N held-out questions as JSON lines")
    parser.add_argument("--stories", type=int, metavar="N", help="instead: N stories")
    a = parser.parse_args()
    out = open(a.output, "wb") if a.output else sys.stdout.buffer
    if a.questions:
        for q in held_out_questions(load_grammar(), a.seed, a.questions):
            out.write(json.dumps(q).encode() + b"\n")
    elif a.stories:
        g, rng = load_grammar(), random.Random(a.seed)
        out.write("\n\n* * *\n\n".join(tell(g, rng).text() for _ in range(a.stories)).encode() + b"\n")
    else:
        write_corpus(out, a.seed, a.bytes, a.mix)


if __name__ == "__main__":
    main()
