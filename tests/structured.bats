#!/usr/bin/env bats
# Answers of a given form: regular expressions, choices, grammars and JSON schemas, in every mode; what is cut and what
# is wrong.

load rig/helpers

setup() {
    enter
    needs_builtin
}

ask() { "$QUILL" --no-config -q --raw --temp 2 --no-stdin "$@" "A person"; }

@test "an answer follows a regular expression, a choice and a grammar" {
    for seed in 1 2 3 4 5; do
        [[ "$(ask --seed $seed -n 40 --regex '[a-z]{3,8} (is|was) [0-9]{1,3}')" =~ ^[a-z]{3,8}\ (is|was)\ [0-9]{1,3}$ ]]
        [[ "$(ask --seed $seed --choice 'yes,no,may\, be')" =~ ^(yes|no|may,\ be)$ ]]
        [[ "$(ask --seed $seed -n 30 --grammar 'root ::= "(" (root | [a-z])+ ")"')" =~ ^\(.*\)$ ]]
    done
    echo 'root ::= "one" | "two"' >g
    [[ "$(ask --grammar-file g)" =~ ^(one|two)$ ]]
}

@test "an answer is JSON that a schema admits, and is closed when tokens run out" {
    needs python3
    schema='{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":120}},"required":["name","age"]}'
    echo "$schema" >schema.json
    for seed in 1 2 3 4 5; do
        ask --seed $seed -n 40 -j "$schema" | python3 -c 'import json,sys; j = json.load(sys.stdin); assert 0 <= j["age"] <= 120 and isinstance(j["name"], str)'
        ask --seed $seed -n 40 -jf schema.json | python3 -c 'import json,sys; json.load(sys.stdin)["age"]'
        ask --seed $seed -n 30 --json-object | python3 -c 'import json,sys; assert isinstance(json.load(sys.stdin), dict)'
    done
}

@test "an answer that was cut says what was open, with exit code 7" {
    run -7 --separate-stderr ask -n 2 -j '{"type":"object","properties":{"a_long_name":{"type":"integer"}},"required":["a_long_name"]}'
    [[ "$stderr" == *"answer cut before it was complete"*"what was open"* ]]
}

@test "what is wrong with a form is said with its place" {
    run -2 --separate-stderr ask --regex '[a-z'
    [[ "$stderr" == *"--regex: column 5: ] expected, found the end"* ]]
    run -2 --separate-stderr ask --grammar 'root ::= x'
    [[ "$stderr" == *'--grammar: rule "x" expected'* ]]
    run -2 --separate-stderr ask --grammar 'root ::= root "a" | "b"'
    [[ "$stderr" == *"left recursion"* ]]
    run -2 --separate-stderr ask -j '{"type":"object","properties":{"x":{"not":{}}}}'
    [[ "$stderr" == *'at #/properties/x: the keyword "not" is not supported'* ]]
    run -2 --separate-stderr ask -j '{"type":'
    [[ "$stderr" == *"line 1, column"* ]]
    run -2 --separate-stderr ask -j '{"type":"string","minLength":3,"maxLength":2}'
    [[ "$stderr" == *"no text fits"* ]]
    run -2 --separate-stderr ask --regex a --choice b
    [[ "$stderr" == *"--regex and --choice: one of them expected"* ]]
    run -6 --separate-stderr ask -jf no-such-file
    python3 -c 'print("[" * 100000)' >deep
    run -2 --separate-stderr ask -jf deep
}

@test "a batch takes forms by line, and says whether an answer is complete; alone the text is the same" {
    needs python3
    cat >jobs <<'JOBS'
{"id":1,"prompt":"Say","temperature":2,"seed":5,"max_tokens":40,"regex":"[a-z]{3,9}"}
{"id":2,"prompt":"Say","temperature":2,"seed":6,"max_tokens":40,"choice":["a,b","c"]}
{"id":3,"prompt":"Say","temperature":2,"seed":7,"max_tokens":60,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"array","items":{"type":"boolean"},"minItems":2}}}}
{"id":4,"prompt":"Say","temperature":2,"seed":8,"max_tokens":40,"response_format":{"type":"json_object"}}
{"id":5,"prompt":"Say","temperature":2,"seed":9,"max_tokens":1,"json_schema":{"const":"a long constant text"}}
JOBS
    # with one order of sums: at this temperature the rounding of other rows in the step shows
    "$QUILL" batch --no-config -q --raw --deterministic --keep-order jobs >replies
    python3 - "$("$QUILL" --no-config -q --raw --deterministic --no-stdin --temp 2 --seed 5 -n 40 --regex '[a-z]{3,9}' Say)" <<'PYTHON'
import json, re, sys
r = [json.loads(l) for l in open("replies")]
assert [x["complete"] for x in r] == [True] * 4 + [False], r
assert re.fullmatch("[a-z]{3,9}", r[0]["text"]) and r[0]["text"] == sys.argv[1]
assert r[1]["text"] in ("a,b", "c")
assert all(isinstance(b, bool) for b in json.loads(r[2]["text"])) and len(json.loads(r[2]["text"])) >= 2
assert isinstance(json.loads(r[3]["text"]), dict)
PYTHON
}

@test "drafts do not change an answer with a form" {
    schema='{"type":"object","properties":{"name":{"type":"string","maxLength":20},"tags":{"type":"array","items":{"type":"string","maxLength":10},"minItems":3}},"required":["name","tags"]}'
    say() { "$QUILL" --no-config -q --no-stdin --deterministic --seed 2 -n 60 --json-schema "$schema" "$@" "Tell me about Anna"; }
    plain=$(say)
    [ "$(say --speculate ngram)" = "$plain" ]
    [ "$(say --speculate builtin)" = "$plain" ]
    [[ "$plain" == '{"name":'* ]]
}

@test "a chat sets a form and takes it back" {
    printf '/set choice yes,no\nhi\n/set choice default\nhi\n' | "$QUILL" --no-config -m builtin -i -q --seed 1 >out 2>err
    [[ "$(head -1 out)" =~ ^(yes|no)$ ]]
    ! [[ "$(sed -n 2p out)" =~ ^(yes|no)$ ]]
}

@test "random schemas at a high temperature: every answer validates" {
    needs python3
    python3 -c 'import jsonschema' 2>/dev/null || skip "the Python package jsonschema is not installed"
    python3 "$TOP/tests/rig/schemas.py" --quill "$QUILL" --model builtin --count 100
}

@test "the commands of docs/structured.md run" {
    quill() { "$QUILL" --no-config -q --temp 2 "$@"; }
    awk '/^```sh$/ { on = 1; next } /^```/ { on = 0 } on' "$TOP/docs/structured.md" >commands
    [ "$(wc -l <commands)" -ge 4 ]
    while read -r line; do eval "$line" </dev/null >out || { echo "$line"; false; }; done <commands
}

@test "--extract prints the first code block or JSON value alone" {
    block='root ::= "Sure {x}:\n```json\n{\"a\": [1]}\n```\nDone [1]"'
    [ "$(ask --extract --grammar "$block")" = '{"a": [1]}' ]
    [ "$(ask --extract --grammar 'root ::= "It is [1, {}] and ```no```"')" = '[1, {}]' ]
    run -7 --separate-stderr ask --extract --choice 'nothing here'
    [ -z "$output" ]
    [[ "$stderr" == *"--extract: a code block or a JSON value expected"* ]]
}
