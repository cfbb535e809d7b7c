#!/usr/bin/env bats
# sampling.bats: the sampling that a model's file recommends: where it applies, and what replaces it.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/own.gguf" template=chatml ctx=256 f32:general.sampling.temp=0.5 u32:general.sampling.top_k=12 \
        f32:general.sampling.penalty_repeat=1.25
    "$MAKE_TINY" "$TINY/usual.gguf" template=chatml ctx=256
    "$MAKE_TINY" "$TINY/dir/" template=chatml ctx=256
    echo '{"do_sample": true, "temperature": 0.5, "top_k": 12, "top_p": null, "repetition_penalty": 1.25}' \
        >"$TINY/dir/generation_config.json"
    export QUILL_MODEL="$TINY/own.gguf"
}

# text MODEL ARGS...: an answer with a fixed seed
text() {
    local model="$1"
    shift
    "$QUILL" -m "$model" --raw -s 5 -n 40 "$@" "the users"
}

@test "the file's sampling is that of a model without it whose user gives the same options" {
    text "$TINY/usual.gguf" --temp 0.5 --top-k 12 --repeat-penalty 1.25 >want
    text "$TINY/usual.gguf" >plain
    run ! cmp -s want plain
    text "$TINY/own.gguf" >got
    cmp got want
    text "$TINY/dir" >got
    cmp got want
    "$QUILL" quantize -q "$TINY/dir" from_dir.gguf F32
    text from_dir.gguf >got
    cmp got want
    "$QUILL" prefill --raw --kv-out prompt.kv "the users"
    "$QUILL" decode --raw --kv-in prompt.kv -s 5 -n 40 </dev/null >got
    cmp got want
    echo '{"prompt": "the users", "seed": 5, "max_tokens": 40}' | "$QUILL" batch --raw >got.json
    echo '{"prompt": "the users", "seed": 5, "max_tokens": 40, "temperature": 0.5, "top_k": 12, "repeat_penalty": 1.25}' |
        "$QUILL" batch -m "$TINY/usual.gguf" --raw >want.json
    [ "$(grep -o '"text":"[^"]*"' got.json)" = "$(grep -o '"text":"[^"]*"' want.json)" ]
}

@test "options, also with the value of the default, a configuration file and a job replace the file's sampling" {
    text "$TINY/usual.gguf" --temp 0.8 --top-k 12 --repeat-penalty 1.25 >want
    text "$TINY/own.gguf" --temp 0.8 >got
    cmp got want
    mkdir -p config/quill
    echo 'temp = 0.8' >config/quill/config
    XDG_CONFIG_HOME="$PWD/config" text "$TINY/own.gguf" >got
    cmp got want
    echo '{"prompt": "the users", "seed": 5, "max_tokens": 40, "temperature": 0.8}' | "$QUILL" batch --raw >got.json
    echo '{"prompt": "the users", "seed": 5, "max_tokens": 40}' |
        "$QUILL" batch -m "$TINY/usual.gguf" --raw --temp 0.8 --top-k 12 --repeat-penalty 1.25 >want.json
    [ "$(grep -o '"text":"[^"]*"' got.json)" = "$(grep -o '"text":"[^"]*"' want.json)" ]
    text "$TINY/own.gguf" --greedy --repeat-penalty 1 >got
    text "$TINY/usual.gguf" --greedy >want
    cmp got want
}

@test "-v and a chat say which values are the file's" {
    "$QUILL" -v -n 1 --top-k 7 hi 2>said >/dev/null
    grep -q '^sampling  *temp 0.5, top-k 7,' said
    grep -q "^ *from the model's file: temp, repeat-penalty$" said
    "$QUILL" -v -n 1 --greedy hi 2>&1 | grep -q '^sampling  *greedy, repeat-penalty 1.25$'
    "$QUILL" -v -n 1 --beams 2 hi 2>&1 | grep -q '^sampling  *a beam search with 2 beams, repeat-penalty 1.25$'
    printf '/set temp\n/set temp 0.3\n/set temp\n/set temp default\n/set temp\n/set top-p\n' | "$QUILL" -i 2>said
    grep -E '^(temp|top-p) ' said >shown
    printf '%-18s %s\n' temp "0.5 (from the model's file)" temp "0.3 (default 0.8)" temp "0.5 (from the model's file)" \
        top-p 0.95 | cmp - shown
}

@test "a saved conversation keeps its own sampling beside the file's" {
    printf '/set temp 0.3\n/save talk.json\n' | "$QUILL" -i
    printf '/set temp\n' | "$QUILL" -i --load talk.json 2>&1 | grep -q '^temp  *0.3 (default 0.8)$'
    printf '/set temp\n' | "$QUILL" -i --load talk.json --temp 0.8 2>&1 | grep -q '^temp  *0.8$'
    printf '/set top-k\n' | "$QUILL" -i -m "$TINY/usual.gguf" --load talk.json 2>&1 | grep -q '^top-k  *40$'
    printf '/load talk.json\n/set temp\n/set top-k\n' | "$QUILL" -i --top-k 3 2>&1 | grep -E '^(temp|top-k) ' >shown
    printf '%-18s %s\n' temp "0.3 (default 0.8)" top-k "12 (from the model's file)" | cmp - shown
}

@test "a beam search and --best-of are no conflict with the file's sampling" {
    "$QUILL" --raw --beams 2 -n 3 hi >/dev/null
    "$QUILL" --raw --best-of 2 -n 3 hi >/dev/null
    echo '{"prompt": "hi", "beams": 2, "max_tokens": 3}' | "$QUILL" batch --raw | grep -q '"finish_reason"'
    run ! "$QUILL" --raw --beams 2 --temp 0.5 -n 3 hi
    "$MAKE_TINY" greedy.gguf ctx=256 f32:general.sampling.temp=0
    "$QUILL" -m greedy.gguf --raw --best-of 2 -v -n 3 hi 2>&1 | grep -q '^sampling  *temp 0.8,'
    echo '{"prompt": "hi", "best_of": 2, "n": 2, "max_tokens": 9}' | "$QUILL" batch -m greedy.gguf --raw >got
    [ "$(grep -o '"text":"[^"]*"' got | sort -u | wc -l)" = 2 ]
    run ! "$QUILL" -m greedy.gguf --raw --best-of 2 --temp 0 -n 3 hi
}

# refused TEXT ARGS...: exit code 3 and one line on stderr that has the text
refused() {
    local text="$1"
    shift
    run -3 "$QUILL" "$@" --raw -n 1 hi
    [ "${#lines[@]}" = 1 ]
    [[ "$output" == *"$text"* ]]
}

@test "a refused /set changes nothing" {
    "$MAKE_TINY" wrong.gguf template=chatml ctx=256 f32:general.sampling.temp=-1
    local code=0
    printf '/set temp default\n/set temp\n/set min-p 0.2\n/set min-p\n' |
        "$QUILL" -i -m wrong.gguf --temp 0.9 2>said || code=$?
    [ "$code" = 3 ] # a chat through a pipe ends with its first error
    grep -q 'general.sampling.temp: a number from 0 to 1000 expected, found -1; the option temp replaces it' said
    grep -E '^(temp|min-p) ' said >shown
    printf '%-18s %s\n' temp "0.9 (default 0.8)" min-p "0.2 (default 0.05)" | cmp - shown
}

@test "wrong values are one line with the option that replaces them" {
    "$MAKE_TINY" wrong.gguf f32:general.sampling.top_p=1.5
    refused "general.sampling.top_p: a number from 0 to 1 expected, found 1.5; the option top-p replaces it" -m wrong.gguf
    "$QUILL" -m wrong.gguf --raw --top-p 0.9 -n 1 hi
    "$MAKE_TINY" wrong.gguf str:general.sampling.temp=hot
    refused "general.sampling.temp: a number from 0 to 1000 expected, found hot; the option temp replaces it" -m wrong.gguf
    "$MAKE_TINY" wrong.gguf f32:general.sampling.top_k=1.5
    refused "general.sampling.top_k: a whole number from -1 to 2147483647 expected, found 1.5; the option top-k replaces it" -m wrong.gguf
    echo '{"temperature": "hot"}' >"$TINY/dir/generation_config.json"
    refused 'temp: a number from 0 to 1000 expected, found "hot"; the option temp replaces it' -m "$TINY/dir"
    "$QUILL" -m "$TINY/dir" --raw --temp 1 -n 1 hi
    "$QUILL" tokenize -m "$TINY/dir" hi
    echo '{"top_k": 3000000000}' >"$TINY/dir/generation_config.json"
    refused 'top_k: a whole number from -1 to 2147483647 expected, found 3000000000;' -m "$TINY/dir"
    run -0 "$QUILL" --dry-run -m "$TINY/dir" hi
    run -0 "$QUILL" batch --dry-run -m "$TINY/dir" /dev/null
    echo '{"top_k": -1, "temperature": 0}' >"$TINY/dir/generation_config.json" # all tokens; greedy
    text "$TINY/dir" >got
    text "$TINY/usual.gguf" --greedy >want
    cmp got want
}
