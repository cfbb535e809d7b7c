#!/usr/bin/env python3
"""Random JSON schemas, their answers by a model at a high temperature, and whether the jsonschema package takes them.

tests/rig/schemas.py --quill QUILL --model MODEL [--count 600] [--seed 1]
Every answer must parse and validate; prints how many did, and each schema with an answer that did not. Exit code 1: some
did not, 77: the jsonschema package is missing.
"""
import argparse
import json
import random
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("the Python package jsonschema is not installed")
    sys.exit(77)


def string(r):
    kind = r.randrange(4)
    if kind == 0:
        return {"type": "string", "minLength": r.randrange(3), "maxLength": 3 + r.randrange(12)}
    if kind == 1:
        return {"type": "string", "pattern": r.choice(["^[a-z]{2,6}$", "^[A-Z][a-z]+( [A-Z][a-z]+)?$", "x|y", "^\\d{3}-\\d{4}$"])}
    if kind == 2:
        return {"type": "string", "format": r.choice(["date", "time", "date-time", "email", "uuid", "ipv4", "uri", "ipv6", "hostname", "duration", "json-pointer"])}
    return {"type": "string"}


def number(r):
    schema = {"type": r.choice(["integer", "number"])}
    low = r.randrange(-50, 50)
    if r.random() < 0.5:
        schema[r.choice(["minimum", "exclusiveMinimum"])] = low if r.random() < 0.7 else low + 0.5
    if r.random() < 0.5:
        schema[r.choice(["maximum", "exclusiveMaximum"])] = low + r.randrange(8, 200)
    if r.random() < 0.2:
        schema["multipleOf"] = r.choice([2, 3, 7])
    return schema


def array(r, depth):
    schema = {"type": "array", "items": value(r, depth - 1)}
    if r.random() < 0.3:
        schema["prefixItems"] = [value(r, depth - 1) for _ in range(1 + r.randrange(2))]
    if r.random() < 0.5:
        schema["minItems"] = r.randrange(4)
    if r.random() < 0.6:
        schema["maxItems"] = schema.get("minItems", 0) + r.randrange(4)
    return schema


def object_(r, depth):
    names = r.sample(["name", "age", "tags", "a b", "größe", "q\"q", "x"], r.randrange(1, 5))
    schema = {"type": "object", "properties": {n: value(r, depth - 1) for n in names}}
    schema["required"] = [n for n in names if r.random() < 0.6]
    if r.random() < 0.4:
        schema["additionalProperties"] = r.choice([False, True, {"type": "integer"}])
    return schema


def union(r, depth):
    kind = r.randrange(4)
    if kind == 3:
        return {"oneOf": [{"const": "x"}, {"type": "array", "items": number(r), "maxItems": 1}, {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 3}]}
    if kind == 0:
        return {"anyOf": [value(r, depth - 1) for _ in range(2)]}
    if kind == 1:
        return {"oneOf": [{"type": "string", "maxLength": 5}, {"type": "null"}, {"type": "integer", "minimum": 0, "maximum": 9}]}
    base = object_(r, 1)
    return {"allOf": [base, {"type": "object", "properties": {"extra": {"type": "boolean"}}, "required": ["extra"]}]} \
        if base.get("additionalProperties") is not False and base.get("additionalProperties") != {"type": "integer"} else base


def value(r, depth):
    if depth <= 0:
        kind = r.randrange(5)
        return [string(r), number(r), {"type": "boolean"}, r.choice([{"enum": [1, "two", None, {"k": [True]}]}, {"enum": [1, 7, "two", "long text", None], "minimum": 3, "maxLength": 4}]),
                {"const": "fixed"}][kind]
    return r.choice([string, number, lambda q: array(q, depth), lambda q: object_(q, depth), lambda q: union(q, depth)])(r)


def schema(r):
    if r.random() < 0.15:  # recursion
        return {"$ref": "#/$defs/tree", "$defs": {"tree": {
            "type": "object", "required": ["value"], "additionalProperties": False,
            "properties": {"value": value(r, 1), "kids": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/tree"}}}}}}
    return value(r, 3)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--quill", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--count", type=int, default=600)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    r = random.Random(a.seed)
    schemas = [schema(r) for _ in range(a.count)]
    jobs = "".join(json.dumps({"id": i, "prompt": "Say", "max_tokens": 400, "temperature": 2, "seed": i, "json_schema": s}) + "\n"
                   for i, s in enumerate(schemas))
    run = subprocess.run([a.quill, "batch", "--no-config", "-q", "-m", a.model, "--raw", "-c", "600", "-np", "8"],
                         input=jobs.encode(), capture_output=True)
    checker, good, cut, bad = jsonschema.Draft202012Validator.FORMAT_CHECKER, 0, 0, 0
    for line in run.stdout.decode().strip().split("\n"):  # splitlines would cut at characters of the answers, too
        reply = json.loads(line)
        if "error" not in reply and not reply["complete"]:
            cut += 1
            continue
        try:
            answer = json.loads(reply["text"])
            jsonschema.Draft202012Validator(schemas[reply["id"]], format_checker=checker).validate(answer)
            good += 1
        except Exception as e:  # whatever is wrong with it
            bad += 1
            print(json.dumps(schemas[reply["id"]]), reply.get("error", reply.get("text")), str(e).split("\n")[0], sep="\n  ")
    print(f"{a.count} schemas: {good} answers validate, {cut} cut, {bad} wrong")
    if run.returncode:
        print(run.stderr.decode())
    sys.exit(0 if good == a.count else 1)


if __name__ == "__main__":
    main()
