#!/usr/bin/env bats
# Answers of a given form: regular expressions, choices, grammars and JSON schemas, in every mode; what is cut and what
# is wrong.

load rig/helpers

setup() {
    enter
    needs_builtin
}

ask() { "$QUILL" --no-config -q --raw --temp 2 --no-stdin "$@" "A person"; }

# Definitions of two tools in tools.json.
tools() {
    cat >tools.json <<'JSON'
[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string","maxLength":12},"days":{"type":"integer","minimum":1,"maximum":9}},"required":["city"]}}},
 {"type":"function","function":{"name":"stop_now","parameters":{"type":"object","properties":{"kind":{"enum":["a","b"]}},"required":["kind"]}}}]
JSON
}

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

@test "an answer that ends early names what is missing, with exit code 7" {
    run -7 --separate-stderr ask -n 2 -j '{"type":"object","properties":{"a_long_name":{"type":"integer"}},"required":["a_long_name"]}'
    [[ "$stderr" == *"the answer ended before its form was complete"*"was missing"* ]]
}

@test "a file's name in the place of a schema or a grammar gets the option that reads it" {
    echo '{"type":"integer"}' >schema.json
    [ "$(code "$QUILL" -j schema.json hi)" -eq 2 ]
    grep -q 'a JSON schema expected, .*; --json-schema-file reads this file$' errors
    echo 'root ::= "a"' >a.gbnf
    [ "$(code "$QUILL" --grammar a.gbnf hi)" -eq 2 ]
    grep -q '; --grammar-file reads this file$' errors
    [ "$(code "$QUILL" -j nofile.json hi)" -eq 2 ]
    not grep -q 'reads this file' errors
}

@test "a stop string that removes the end of a form leaves it incomplete" {
    needs python3
    run -7 --separate-stderr ask -n 20 --stop '}' --json-object
    [[ "$stderr" == *"a stop string ended it; at least this was missing: }"* ]]
    run -7 --separate-stderr ask --stop 'll' --regex 'hello'
    [ "$output" = he ]
    [[ "$stderr" == *"was missing: llo"* ]]
    run -0 ask --ignore-eos --stop ' END' --regex 'abc( END)?' # what is printed is complete
    [ "$output" = abc ]
    cat >jobs <<'JOBS'
{"prompt":"x","json_object":true,"stop":"}","max_tokens":20,"n":3}
{"prompt":"x","json_object":true,"stop":"}","max_tokens":20,"best_of":2}
{"prompt":"x","json_object":true,"stop":"}","max_tokens":20,"beams":2,"n":2}
{"prompt":"x","json_object":true,"stop":"no such text","max_tokens":20}
{"prompt":"x","regex":"abc( END)?","ignore_eos":true,"stop":" END","beams":2,"raw":true}
JOBS
    "$QUILL" batch --no-config jobs >out
    python3 - <<'PYTHON'
import json
for j in map(json.loads, open("out")):
    for c in j.get("choices", [j]):
        whole = c["finish_reason"] == "eog" or c["text"] == "abc"
        assert c["complete"] is whole, j
PYTHON
}

@test "an answer of a given form may fill the context to its last slot" {
    "$MAKE_TINY" tiny.gguf seed=1 ctx=512
    # token 49 is the full stop, which is left for the end
    "$QUILL" --no-config -m tiny.gguf -c 40 --isa scalar --seed 2 --logit-bias 49-20 --regex '[a-z]{1,200}\.' --json hello </dev/null >out
    [ "$(jq '.prompt_tokens + .completion_tokens' out)" -eq 41 ]
    [ "$(jq -r .finish_reason out)" = eog ]
}

@test "a complete form ends where nothing more fits the limit, without end tokens too" {
    needs python3
    few() { "$QUILL" --no-config -q --raw --no-stdin -n 40 "$@" "A person"; }
    form=(--regex '(hello world ){2,30}')
    for flags in '--greedy' '--temp 2' '--beams 3' '--best-of 2' '--greedy --speculate ngram' '--beams 3 --length-penalty 0'; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr few --ignore-eos $flags "${form[@]}"
        [[ "$output" =~ ^(hello world ){2,30}$ ]]
        [ -z "$stderr" ]
    done
    run -0 few --logit-bias 0-inf --logit-bias 2-inf --greedy "${form[@]}"
    [[ "$output" =~ ^(hello world ){2,30}$ ]]
    for flags in --greedy '--beams 2'; do # nothing fits: the empty answer is complete
        # shellcheck disable=SC2086
        run -0 few --ignore-eos $flags -n 2 --regex '(hello world hello world)?'
        [ -z "$output" ]
    done
    run -7 few --ignore-eos --greedy -n 3 "${form[@]}" # not complete
    cat >jobs <<'JOBS'
{"prompt":"x","raw":true,"max_tokens":20,"ignore_eos":true,"regex":"(hello world ){2,30}"}
{"prompt":"x","raw":true,"greedy":true,"ignore_eos":true,"max_tokens":20,"beams":2,"regex":"(hello world ){2,30}"}
{"prompt":"x","raw":true,"ignore_eos":true,"max_tokens":20,"best_of":2,"regex":"(hello world ){2,30}"}
{"prompt":"x","raw":true,"ignore_eos":true,"max_tokens":20,"n":3,"regex":"(hello world ){2,30}"}
JOBS
    "$QUILL" batch --no-config jobs >out
    python3 - <<'PYTHON'
import json, re
for j in map(json.loads, open("out")):
    for c in j.get("choices", [j]):
        assert re.fullmatch("(hello world ){2,30}", c["text"]), j
        assert c["complete"] and c["finish_reason"] in ("eog", "length"), j
PYTHON
}

@test "what is wrong with a form is said with its place" {
    for option in --json-schema-file --grammar-file --tools; do [ "$(code "$QUILL" $option . hi)" -eq 6 ]; done # a folder
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
    [[ "$stderr" == *"no text matches"* ]]
    run -2 --separate-stderr ask --regex a --choice b
    [[ "$stderr" == *"--regex and --choice: one of them expected"* ]]
    run -6 --separate-stderr ask -jf no-such-file
    python3 -c 'print("[" * 100000)' >deep
    run -2 --separate-stderr ask -jf deep
}

@test "values of const and enum: what the other keywords admit, and nothing else" {
    for seed in 1 2 3 4 5 6; do
        [ "$(ask --seed $seed -j '{"const":"a","enum":["a","b"]}')" = '"a"' ]
        [[ "$(ask --seed $seed -j '{"minimum":1,"enum":[0.5,5,1700000000]}')" =~ ^(5|1700000000)$ ]]
    done
    [ "$(ask -j '{"type":"integer","minimum":1000000000,"enum":[1700000000]}')" = 1700000000 ]
    [ "$(ask -j '{"type":"number","exclusiveMinimum":0,"maximum":0.1,"enum":[0,0.00000025,0.5]}')" = 2.5e-7 ]
    [ "$(ask -j '{"multipleOf":0.1,"enum":[0.25,0.7]}')" = 0.7 ]
}

@test "long patterns and deep alternatives take no long time" {
    python3 -c 'print(r"\ud800" * 150000)' >pattern
    run -2 timeout 20 "$QUILL" --no-config -q --raw -n 2 --regex "$(head -c 100000 pattern)" x </dev/null
    python3 - >job <<'PYTHON'
import json
def deep(n, leaf):
    return {"type": leaf} if n == 0 else {"type": "object", "properties": {"a": deep(n - 1, leaf)}, "required": ["a"]}
print(json.dumps({"prompt": "x", "max_tokens": 2, "regex": r"\ud800" * 150000}))
print(json.dumps({"prompt": "x", "max_tokens": 400, "json_schema": {"oneOf": [deep(30, "integer"), deep(30, "string")]}}))
PYTHON
    run timeout 60 "$QUILL" batch --no-config job
    [ "$(grep -c '"line":1,"error"' <<<"$output")" -eq 1 ]
    [ "$(grep -c '"line":2,"text"' <<<"$output")" -eq 1 ]
}

@test "the first token of an answer leaves room for the rest" {
    echo '{"raw":true,"prompt":"","max_tokens":4,"regex":"[0-9]{4}|[A-Z][.!?#]{9}","n":12,"temperature":2,"top_k":0,"top_p":1,"min_p":0}' |
        "$QUILL" batch --no-config >out
    python3 -c 'import json; j = json.load(open("out")); assert len(j["choices"]) == 12 and all(c["complete"] for c in j["choices"]), j'
}

@test "a form of a job is taken as it stands, or refused" {
    cat >jobs <<'JOBS'
{"prompt":"x","max_tokens":5,"choice":["a\u0000b","c"]}
{"prompt":"x","max_tokens":5,"choice":["","c"]}
{"prompt":"x","max_tokens":5,"regex":"a\u0000b"}
{"prompt":"x","max_tokens":5,"regex":"a","response_format":{"type":"json_object"}}
{"prompt":"x","max_tokens":5,"response_format":{"type":"json_object"},"regex":"a"}
{"prompt":"x","max_tokens":5,"json_object":true,"regex":"a"}
{"prompt":"x","max_tokens":5,"json_schema":false}
{"prompt":"x","max_tokens":50,"json_schema":{}}
{"prompt":"x","max_tokens":50,"json_object":true}
JOBS
    run "$QUILL" batch --no-config --keep-order jobs
    python3 - "$output" <<'PYTHON'
import json, sys
lines = [json.loads(l) for l in sys.argv[1].splitlines() if l.startswith("{")]
assert ["error" in l for l in lines] == [True] * 6 + [False] * 3, lines # "json_schema":false is none
json.loads(lines[7]["text"])
assert isinstance(json.loads(lines[8]["text"]), dict)
PYTHON
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
    python3 - >jobs <<'PYTHON'
import json
for limit, n in (1, 1), (200, 2):
    body = {"messages": [{"role": "user", "content": "Say"}], "n": n, "max_tokens": limit, "seed": 5,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": "a long text"}}}}
    print(json.dumps({"custom_id": str(limit), "method": "POST", "url": "/v1/chat/completions", "body": body}))
PYTHON
    "$QUILL" batch --no-config -q --keep-order jobs | grep -o '"complete":\[[a-z,]*\]' >complete
    [ "$(cat complete)" = '"complete":[false]
"complete":[true,true]' ]
}

@test "drafts do not change an answer with a form" {
    schema='{"type":"object","properties":{"name":{"type":"string","maxLength":20},"tags":{"type":"array","items":{"type":"string","maxLength":10},"minItems":3}},"required":["name","tags"]}'
    say() { "$QUILL" --no-config -q --no-stdin --deterministic --seed 2 -n 60 --json-schema "$schema" "$@" "Tell me about Anna"; }
    plain=$(say)
    [ "$(say --speculate ngram)" = "$plain" ]
    [ "$(say --speculate builtin)" = "$plain" ]
    [[ "$plain" == '{"name":'* ]]
    tools
    calls() { "$QUILL" --no-config -q --no-stdin --deterministic --seed 4 -n 60 --chat-template hermes --tools tools.json --tool-choice required "$@" "Hi"; }
    plain=$(calls)
    [ "$(calls --speculate ngram)" = "$plain" ]
    [ "$(calls --speculate builtin)" = "$plain" ]
    [[ "$plain" == '<tool_call>'* ]]
}

@test "beams and the best of several samples have the form of the answer" {
    needs python3
    for many in "--beams 3" "--best-of 3 --temp 1.5"; do
        "$QUILL" --no-config -q --raw --no-stdin --seed 3 $many -n 40 --json --regex '(in|on) the [a-z]{3,5} [0-9]{2}' "It was" >out
        python3 -c 'import json, re; j = json.load(open("out")); assert len(j["choices"]) == 3 and all(c["complete"] and re.fullmatch("(in|on) the [a-z]{3,5} [0-9]{2}", c["text"]) for c in j["choices"]), j'
    done
}

@test "a chat sets a form and takes it back" {
    printf '/set choice yes,no\nhi\n/set choice default\nhi\n' | "$QUILL" --no-config -m builtin -i -q --seed 1 >out 2>err
    [[ "$(head -1 out)" =~ ^(yes|no)$ ]]
    [[ ! "$(sed -n 2p out)" =~ ^(yes|no)$ ]]
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

call() { "$QUILL" --no-config -q --no-stdin --temp 2 -n 120 --chat-template hermes --tools tools.json "$@" "Hi"; }

@test "a stop string inside a call ends the answer with stop, not with tool_calls" {
    needs python3
    tools
    [ "$(code call --tool-choice stop_now --json -r '</tool_call>')" -eq 7 ]
    grep -q '"finish_reason":"stop"' out
    grep -q '"tool_calls":\[{' out # what there is of them
    grep -q 'ended before its form was complete: a stop string ended it' errors
    printf '{"messages":[{"role":"user","content":"Hi"}],"stop":"</tool_call>","tool_choice":"stop_now","tools":%s}\n' "$(tr -d '\n' <tools.json)" >job
    "$QUILL" batch --no-config -q --temp 2 -n 120 --chat-template hermes job >out
    grep -q '"finish_reason":"stop","complete":false' out
    # after the call it cuts nothing
    [ "$(code call --tool-choice stop_now --json -r 'never said')" -eq 0 ]
    grep -q '"finish_reason":"tool_calls"' out
}

@test "calls of tools follow their schemas, and JSON has them" {
    needs python3
    tools
    for seed in 1 2 3; do
        call --seed $seed --tool-choice required --json >required
        call --seed $seed --tool-choice stop_now --json >one
        call --seed $seed --tool-choice none --json >none
        call --seed $seed --json >auto
        python3 - <<'PYTHON'
import json
def calls(name):
    j = json.load(open(name))
    found = [c["function"] for c in j.get("tool_calls", [])]
    assert not found or j["finish_reason"] in ("tool_calls", "length"), j
    return [(f["name"], json.loads(f["arguments"])) for f in found]
for name, arguments in calls("required") + calls("auto"):
    if name == "get_weather":
        assert len(arguments["city"]) <= 12 and 1 <= arguments.get("days", 1) <= 9 and set(arguments) <= {"city", "days"}
    else:
        assert name == "stop_now" and arguments["kind"] in "ab", (name, arguments)
assert len(calls("required")) >= 1 and json.load(open("required"))["text"] == ""
assert len(calls("one")) == 1 and calls("one")[0][0] == "stop_now"
assert calls("none") == []
PYTHON
    done
}

@test "a batch takes tools, and earlier calls with their results" {
    needs python3
    tools
    python3 - >jobs <<'PYTHON'
import json
tools = json.load(open("tools.json"))
turns = [{"role": "user", "content": "Hi"}]
body = {"messages": turns, "tools": tools, "max_tokens": 100, "temperature": 2, "seed": 1}
one = {"type": "function", "function": {"name": "stop_now"}}
print(json.dumps({"custom_id": "a", "url": "/v1/chat/completions", "body": {**body, "tool_choice": "required"}}))
print(json.dumps({"custom_id": "b", "url": "/v1/chat/completions", "body": {**body, "tool_choice": one}}))
call = {"id": "call00000", "type": "function", "function": {"name": "stop_now", "arguments": "{\"kind\": \"a\"}"}}
more = turns + [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call00000", "content": "done"}]
print(json.dumps({"id": "c", **body, "messages": more, "tool_choice": "none"}))
print(json.dumps({"id": "d", **body, "tool_choice": "nonesuch"}))
print(json.dumps({"id": "e", **body, "regex": "a"}))
PYTHON
    run -2 "$QUILL" batch --no-config -q --keep-order --chat-template hermes jobs
    grep '^{' <<<"$output" >replies
    python3 - <<'PYTHON'
import json
a, b, c, d, e = [json.loads(l) for l in open("replies")]
for reply in a, b:
    choice = reply["response"]["body"]["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice
    assert choice["message"]["tool_calls"][0]["type"] == "function"
    json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
assert "tool_calls" not in c and "text" in c, c
assert "tool choice: auto, none, required" in d["error"]["message"] and "nonesuch" in d["error"]["message"], d
assert "one of them expected" in e["error"]["message"], e
PYTHON
}

@test "what is wrong with tools is said with its place" {
    tools
    run -2 --separate-stderr call --regex a
    [[ "$stderr" == *"--regex and --tools: one of them expected"* ]]
    run -2 --separate-stderr "$QUILL" --no-config -q --no-stdin --chat-template vicuna --tools tools.json Hi
    [[ "$stderr" == *"a chat template that shows how calls are written expected"*"found vicuna"* ]]
    run -2 --separate-stderr "$QUILL" --no-config -q --no-stdin --raw --tools tools.json Hi
    [[ "$stderr" == *"--raw and --tools: one of them expected, found both"* ]]
    printf '[{"name":"a"},\n {"name":}]' >tools.json
    run -2 --separate-stderr call
    [[ "$stderr" == *"--tools tools.json: line 2, column"* ]]
    echo '[{"name":"a","parameters":{"type":"object","properties":{"x":{"not":{}}}}}]' >tools.json
    run -2 --separate-stderr call
    [[ "$stderr" == *'tool "a": parameters: at #/properties/x: the keyword "not" is not supported'* ]]
    run -6 --separate-stderr "$QUILL" --no-config -q --no-stdin --chat-template hermes --tools nonesuch Hi
}

@test "the form applies to the answer, after the thoughts" {
    needs python3
    plain="{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}{# <think> </think> #}"
    echo "$plain" >free.jinja
    echo "$plain{{ '<think>\n' }}" >opened.jinja
    for seed in 1 2 3; do
        for template in free opened; do
            "$QUILL" --no-config -q --no-stdin --temp 2 --seed $seed -n 60 --chat-template-file $template.jinja --regex '[a-z]{3}[0-9]' --json Hi >$template
        done
        python3 - <<'PYTHON'
import json, re
for name in "free", "opened":
    j = json.load(open(name))
    assert re.fullmatch("[a-z]{3}[0-9]", j["text"]), j
assert json.load(open("opened"))["thinking"]
PYTHON
    done
}

@test "--extract prints the first code block or JSON value alone" {
    block='root ::= "Sure {x}:\n```json\n{\"a\": [1]}\n```\nDone [1]"'
    [ "$(ask --extract --grammar "$block")" = '{"a": [1]}' ]
    [ "$(ask --extract --grammar 'root ::= "It is [1, {}] and ```no```"')" = '[1, {}]' ]
    run -2 ask --extract --echo --choice '[1]' # it would be taken from the prompt
    run -7 --separate-stderr ask --extract --choice 'nothing here'
    [ -z "$output" ]
    [[ "$stderr" == *"--extract: a code block or a JSON value expected"* ]]
    run -7 ask --extract --grammar 'root ::= "Sure:\n```py"' # a block that was cut before its text
    [ "$(ask --extract --grammar 'root ::= "```py\nx = 1"')" = 'x = 1' ]
}

@test "files of a form and of tools are read once" {
    tools
    local said="$QUILL --no-config -q --greedy -n 20"
    ask() { "$QUILL" --no-config -q --seed 4 -n 60 --chat-template hermes --tool-choice required "$@"; }
    ask --tools tools.json --no-stdin --json Hi | jq '.tool_calls[0].function' >want
    ask --tools <(cat tools.json) --no-stdin --json Hi | jq '.tool_calls[0].function' | cmp - want
    ask --tools - --json Hi <tools.json | jq '.tool_calls[0].function' | cmp - want
    printf '{"prompt":"Hi","seed":4}\n{"prompt":"Hi","seed":4}\n' >jobs
    "$QUILL" batch --no-config -q -n 60 --chat-template hermes --tool-choice required --tools - jobs <tools.json >out
    [ "$(jq -s '[.[] | select(.tool_calls)] | length' out)" = 2 ]
    # chats
    echo '{"type":"integer"}' >schema
    printf 'Hi\nHello\n' | $said -i --tools <(cat tools.json) --chat-template hermes >out
    printf 'Hi\nHello\n' | $said -i -jf schema >want
    printf 'Hi\nHello\n' | $said -i -jf <(cat schema) | cmp - want
    printf 'Hi\nHello\n' | $said -i --grammar-file <(echo 'root ::= "yes" | "no"') >out
    grep -Exc 'yes|no' out | grep -x 2
    mkfifo pipe
    cat schema >pipe &
    printf '/set json-schema-file pipe\nHi\n/set temp 0\nHello\n' | timeout 60 $said -i | cmp - want
    wait $!
    run -6 --separate-stderr "$QUILL" --no-config -q -n 5 -i <<<$'/set json-schema-file schema\n/set json-schema-file nonesuch\n/set json-schema-file'
    [[ "$stderr" == "quill: --json-schema-file: nonesuch: cannot open"*"json-schema-file   schema" ]]
    # candidates
    [ "$("$QUILL" --no-config -q --no-stdin --best-of 2 --grammar-file <(echo 'root ::= "yes"') Hi)" = yes ]
    # stdin of a chat has its lines
    run -2 --separate-stderr "$QUILL" --no-config -q -i <<<'/set tools -'
    [[ "$stderr" == "quill: tools: a file expected, found -, but stdin has the lines of the chat; ./- names a file" ]]
}

@test "a batch keeps the form with which it began" {
    echo '{"type":"integer"}' >schema
    mkfifo jobs answers
    "$QUILL" batch --no-config -q --greedy -jf schema jobs >answers &
    exec 8<answers 7>jobs
    echo '{"id":1,"prompt":"hi"}' >&7
    read -r first <&8
    echo '{"type":"boolean"}' >schema
    echo '{"id":2,"prompt":"hi"}' >&7
    read -r second <&8
    rm schema
    echo '{"id":3,"prompt":"hi"}' >&7
    exec 7>&-
    read -r third <&8
    wait $!
    for answer in "$first" "$second" "$third"; do [ "$(jq -r '.text | fromjson | type' <<<"$answer")" = number ]; done
}

@test "arguments without quotes have the types of the schema, whose root may refer to another part" {
    cat >typed.jinja <<'EOF'
{# <tool_call><function= #}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
<function={{ c.function.name }}>
{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>
{{ v }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}{% endfor %}{{ tools }}
EOF
    cat >typed.json <<'EOF'
[{"type": "function", "function": {"name": "f", "parameters": {"$ref": "#/$defs/P", "$defs": {"P": {
  "allOf": [{"type": "object", "properties": {"n": {"allOf": [{"type": "integer"}, {"minimum": 1}]}, "e": {"enum": [5, 6]}}},
            {"properties": {"u": {"maximum": 9}, "z": {"anyOf": [{"type": "null"}, {"const": "x"}]}, "s": {"enum": ["5"]}},
             "required": ["n", "e", "u", "z", "s"]}]}}}}}]
EOF
    for seed in 1 2 3 4 5 6; do
        "$QUILL" --chat-template-file typed.jinja --tools typed.json --tool-choice f --json -n 300 --seed $seed hi </dev/null >out
        python3 - <<'EOF'
import json
a = json.loads(json.load(open("out"))["tool_calls"][0]["function"]["arguments"])
assert list(a) == ["n", "e", "u", "z", "s"], a
assert type(a["n"]) is int and a["n"] >= 1 and a["e"] in (5, 6) and type(a["u"]) in (int, float), a
assert a["z"] in (None, "x") and a["s"] == "5", a
EOF
    done
    echo '[{"name": "f", "parameters": {"type": "object", "anyOf": [{"required": ["a"]}]}}]' >bad.json
    [ "$(code "$QUILL" --chat-template-file typed.jinja --tools bad.json --json hi </dev/null)" -eq 2 ]
    grep -q 'type, properties, required, additionalProperties and propertyNames expected.*found "anyOf"' errors
}

@test "a stop string is no part of the text beside calls" {
    echo '[{"name": "f", "parameters": {"type": "object", "properties": {}}}]' >f.json
    for seed in 1 2 3; do
        "$QUILL" --chat-template hermes --tools f.json --tool-choice f --json -n 100 --seed $seed --stop '</tool' hi </dev/null >out 2>/dev/null || [ $? -eq 7 ]
        python3 -c 'import json; t = json.load(open("out"))["text"]; assert "</tool" not in t, t'
    done
}

@test "rules that are nested too deep, or call each other too often, are errors in a moment" {
    python3 - <<'EOF'
n = 20000
with open("deep.gbnf", "w") as f: # x{0} makes the rules known one by one
    f.write("root ::= " + " ".join(f"x{i}{{0}}" for i in range(n - 1, 0, -100)) + " x0\n")
    for i in range(n): f.write(f"x{i} ::= x{i + 1}\n" if i < n - 1 else f'x{i} ::= "b"\n')
EOF
    [ "$(code timeout 60 "$QUILL" --raw -n 5 --grammar-file deep.gbnf x)" -eq 2 ]
    grep -q 'rules and groups 1500 deep at most expected' errors
    python3 -c 'print("".join("\\p{%s}" % c for c in ["L", "Lu", "Nd"] * 300))' >many.regex
    timeout 20 "$QUILL" --raw -n 5 --regex "$(cat many.regex)" x >out 2>errors || [ $? -eq 7 ]
}
