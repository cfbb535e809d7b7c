#!/usr/bin/env bats
# templates.bats: `quill template` at the front door, and over real templates against what transformers renders.

load rig/helpers

@test "template renders JSON messages with variables, and with the time that --now gives" {
    printf '{{ bos_token }}{%% for m in messages %%}<{{ m.role }}>{{ m.content }}{%% endfor %%}{{ x }}{{ add_generation_prompt }}{{ eos_token }}' >t.jinja
    printf '[{"role":"user","content":"a\\u0000b {{ 1 }}"}]' | "$QUILL" template --chat-template-file t.jinja --bos '<B>' --eos '<E>' >out
    printf '<B><user>a\0b {{ 1 }}True<E>' | cmp - out
    printf '{"messages":[],"x":[1.0,{"k":null}]}' >in.json
    "$QUILL" template --chat-template-file t.jinja --no-generation-prompt -f in.json >out
    printf "[1.0, {'k': None}]False" | cmp - out
    printf '{{ strftime_now("%%Y-%%m-%%d %%H:%%M %%a") }}' >now.jinja
    [ "$("$QUILL" template --chat-template-file now.jinja --now 2026-01-02T03:04:05 <<<'[]')" = "2026-01-02 03:04 Fri" ]
    printf '[{"role":"user","content":"hi"}]' | "$QUILL" template --chat-template chatml >out
    printf '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n' | cmp - out
}

# refused CODE WORD ARGS...: exit code, one line on stderr with the word, nothing on stdout; stdin is in.json
refused() {
    local expected="$1" word="$2" found=0
    shift 2
    "$QUILL" template "$@" >out 2>errors <in.json || found=$?
    [ "$found" -eq "$expected" ]
    [ ! -s out ]
    [ "$(wc -l <errors)" -eq 1 ]
    grep -q "^quill: .*$word" errors
}

@test "wrong messages and templates are errors in one line" {
    printf '[]' >in.json
    printf '{{ raise_exception("No\\nway") }}' >no.jinja
    refused 3 "line 1: No?way" --chat-template-file no.jinja
    printf '{%% if x' >cut.jinja
    refused 3 "cut.jinja: line 1" --chat-template-file cut.jinja
    head -c 20000000 /dev/zero | tr '\0' '(' >large.jinja
    refused 3 large --chat-template-file large.jinja
    printf '{%% for a in range(99999) %%}{%% for b in range(99999) %%}x{%% endfor %%}{%% endfor %%}' >endless.jinja
    refused 3 "longer\|memory" --chat-template-file endless.jinja
    refused 2 "mistral-v7" --chat-template nonesuch
    refused 6 missing --chat-template-file missing
    refused 2 "now" --chat-template chatml --now yesterday
    refused 2 "a day of the calendar" --chat-template chatml --now 2026-02-30
    printf '[{]' >in.json
    refused 2 JSON --chat-template chatml
    printf '{"a":1}' >in.json
    refused 2 messages --chat-template chatml
    for wrong in '{"messages":5}' '[1]' '{"messages":[{},"a"]}'; do
        printf '%s' "$wrong" >in.json
        refused 2 "which are objects" --chat-template chatml
    done
    (printf '[{"role":"user","content":' && head -c 1500 /dev/zero | tr '\0' '[' && head -c 1500 /dev/zero | tr '\0' ']' && printf '}]') >in.json
    refused 3 levels --chat-template chatml
}

@test "a template may nest less deeply on a small stack" {
    [ -n "$QUILL_FAULTS" ] || skip "functions of a build with a sanitizer need more stack"
    echo '[]' >in.json
    (printf '{%% if 1 %%}%.0s' {1..790} && printf x && printf '{%% endif %%}%.0s' {1..790}) >deep.jinja
    [ "$("$QUILL" template --chat-template-file deep.jinja -f in.json)" = x ]
    ulimit -s 256
    refused 3 'nests deeper than 192 levels' --chat-template-file deep.jinja
}

@test "real templates render byte for byte as in transformers" {
    needs_data templates
    python3 - "$QUILL" "$data/templates" <<'PY'
import json, subprocess, sys
quill, folder = sys.argv[1:]
data = json.load(open(folder + "/expected.json"))
bad = []
for name, renders in data["expected"].items():
    for case, want in renders.items():
        args = [quill, "template", "--chat-template-file", f"{folder}/{name}.jinja", "--bos", data["bos_token"], "--eos", data["eos_token"], "--now", data["now"]]
        args += ["--no-generation-prompt"] if case.endswith(":nogen") else []
        p = subprocess.run(args, input=json.dumps(data["cases"][case.split(":")[0]]).encode(), capture_output=True)
        good = p.returncode == 3 if isinstance(want, dict) else p.returncode == 0 and p.stdout.decode() == want
        if not good:
            bad.append(f"{name} {case}: {p.stderr.decode()}")
print(sum(map(len, data["expected"].values())), "renders;", *bad, sep="\n")
sys.exit(bool(bad))
PY
}

@test "snippets and mutated templates behave as in Jinja2" {
    folder="${QUILL_TEST_DATA:+$QUILL_TEST_DATA/templates}"
    [ -d "$folder" ] || folder=""
    run python3 "$BATS_TEST_DIRNAME/rig/jinja_reference.py" "$QUILL" $folder
    [ "$status" -ne 77 ] || skip "python3-jinja2 is not there"
    echo "$output"
    [ "$status" -eq 0 ]
}
