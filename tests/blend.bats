#!/usr/bin/env bats
# blend.bats: --chunk, --blend, quill chunk, chunks in jobs, what --kv-dir keeps of them.
load rig/helpers

setup() {
    enter
    needs_builtin
    printf 'Tom went to the mill. He put the blue cup there.\n' >a.txt
    printf 'Anna has a red ball. She likes the garden.\n\n' >b.txt
    printf 'one text\n---\n\n---\n another \n---\n' >many.txt
    ask=("$QUILL" --no-config -q --greedy -n 24)
}

tokens_of() { # of a prompt, in lines
    "$QUILL" --no-config --greedy -n 0 --dump-tokens "$@" 2>&1 >/dev/null | grep -P '^\d+\t'
}

@test "chunks stand in the user's message, and the tokens are the same whatever the mode" {
    tokens_of --chunk a.txt --chunk b.txt --blend full "Where is the blue cup?" >full
    for mode in cacheblend epic reuse cacheblend,ratio=0.5,k=3; do
        tokens_of --chunk a.txt --chunk b.txt --blend $mode "Where is the blue cup?" >other
        cmp full other
    done
    cut -f2 full | tr -d '\n' | grep -qF 'user\nTom went to the mill. He put the blue cup there.\n\nAnna has a red ball. She likes the garden.\n\nWhere is the blue cup?'
}

@test "everything computed again is the plain prompt, byte for byte" {
    for form in --raw --chat; do
        "${ask[@]}" --deterministic $form --json --logprobs 3 --chunk a.txt --chunk b.txt --blend full "Where is the blue cup?" | jq -c .tokens >full
        "${ask[@]}" --deterministic $form --json --logprobs 3 --chunk a.txt --chunk b.txt --blend cacheblend,ratio=1 "Where is the blue cup?" | jq -c .tokens >blended
        cmp full blended
        "${ask[@]}" --deterministic $form --json --logprobs 3 --chunk a.txt --chunk b.txt --blend epic,k=999 "Where is the blue cup?" | jq -c .tokens >blended
        cmp full blended
    done
}

@test "a chunk is computed once, and its file is as it was after any use" {
    run -0 "$QUILL" --no-config -v --greedy -n 4 --kv-dir d --chunk a.txt --chunk b.txt "Where is the blue cup?"
    [[ $output == *"2 computed now"* ]]
    [ "$(ls d/*.chunk | wc -l)" -eq 2 ]
    sha256sum d/*.chunk >before
    for mode in cacheblend epic reuse full; do
        run -0 "$QUILL" --no-config -v --greedy -n 4 --kv-dir d --blend $mode --chunk b.txt --chunk a.txt "Who has a ball?"
        [[ $output != *"1 computed now"* && $output != *"2 computed now"* ]]
    done
    sha256sum --quiet -c before
}

@test "tokens of chunks that are not computed again count as cached" {
    "$QUILL" chunk add --no-config -q --kv-dir d a.txt b.txt
    for mode in reuse epic,k=3 cacheblend,ratio=0.4 full; do
        "$QUILL" --no-config -v --greedy -n 4 --json --kv-dir d --blend $mode --chunk a.txt --chunk b.txt "Where is the blue cup?" >out 2>errors
        read -r kept again <<<"$(sed -nE 's/^blended +([0-9]+) tokens .*, ([0-9]+) of them .*/\1 \2/p' errors)"
        [ "$(jq .cached_tokens out)" -eq $((kept - again)) ]
        [ "$mode" = full ] || [ "$kept" -gt "$again" ]
        grep -q "^prefill  *$(jq '.prompt_tokens - .cached_tokens' out) tokens*, $((kept - again)) cached" errors
    done
    echo "{\"chunks\":[\"$(head -1 a.txt)\"],\"prompt\":\"Where is the blue cup?\",\"max_tokens\":4}" |
        "$QUILL" batch --no-config -q --kv-dir d --blend reuse >out
    [ "$(jq .usage.cached_tokens out)" -gt 5 ]
}

figure() { # KEY OPTIONS...
    for n in 1 2; do seq -s ' ' $n 2 200 >$n.txt; done
    "${ask[@]}" --raw --json -n 2 --chunk 1.txt --chunk 2.txt "${@:2}" "So?" | jq "$1"
}

@test "a blended prompt costs less than a full one" {
    full=$(figure .prefill_flops --blend full)
    "$QUILL" chunk add --no-config -q --kv-dir d 1.txt 2.txt
    for mode in cacheblend cacheblend,gradual=0.5 epic reuse; do
        jq -en "$(figure .prefill_flops --kv-dir d --blend $mode) | 0 < . and . < $full"
    done
}

@test "the time in which missing chunks are computed belongs to the first token, not to the prefill" {
    figure '[.prefill_ms, .ttft_ms]' >first
    jq -e '0 < .[0] and .[0] < 0.8 * .[1]' first
}

@test "blended KV is never kept as a prefix" {
    "${ask[@]}" --kv-dir d --kv-block 4 --chunk a.txt --chunk b.txt "Where is the blue cup?"
    [ -z "$(ls d/*.kv 2>/dev/null)" ]
    "${ask[@]}" --kv-dir d --kv-block 4 --blend full --chunk a.txt "Where is the blue cup?"
    [ -n "$(ls d/*.kv)" ]
}

@test "quill chunk add computes ahead of time" {
    run -0 "$QUILL" chunk add --no-config --kv-dir d a.txt b.txt
    [ "$output" = "2 chunks, 25 tokens: 2 computed, 0 already stored" ]
    run -0 "$QUILL" chunk add --no-config --kv-dir d a.txt --chunk-split --- many.txt
    [[ $output == *"3 chunks, "*": 2 computed, 1 already stored" ]]
    run -0 "$QUILL" --no-config -v --greedy -n 4 --kv-dir d --chunk a.txt --chunk b.txt "Where is the blue cup?"
    [[ $output == *"chunks     2; 0 computed now"* ]]
    run -2 "$QUILL" chunk add --no-config a.txt
    [[ $output == *"--kv-dir DIR expected"* ]]
    run -2 "$QUILL" chunk list
    run -2 "$QUILL" chunk add --no-config --kv-dir d
}

@test "quill kv lists, checks and removes" {
    "$QUILL" chunk add --no-config -q --kv-dir d a.txt b.txt
    "${ask[@]}" --kv-dir d --kv-block 8 "Tom went to the mill and to the river and home again."
    run -0 "$QUILL" kv list d
    [ "$(grep -c ^chunk <<<"$output")" -eq 2 ]
    [ "$(grep -c ^block <<<"$output")" -ge 1 ]
    "$QUILL" kv list --json d >list
    jq -e 'map(.path) == (map(.path) | sort) and all(.tokens > 0 and .type_k == "F16" and (.model | length) == 16)' list
    [ "$(jq '[.[] | select(.kind == "chunk")] | length' list)" -eq 2 ]
    [ "$(jq '[.[].bytes] | add' list)" -eq "$(cat d/*.chunk d/*.kv | wc -c)" ]
    for file in d/*.chunk; do "$QUILL" kv check "$file" >one; not grep -q ^file one; done
    # several files: each is named, and a damaged one does not hide the others
    run -0 "$QUILL" kv info d/*.chunk
    [ "$(grep -c '^file  *d/.*\.chunk$' <<<"$output")" -eq 2 ]
    [ "$(grep -c ^tokens <<<"$output")" -eq 2 ]
    printf x >>"$(ls d/*.chunk | head -1)"
    run -3 "$QUILL" kv check "$(ls d/*.chunk | head -1)"
    "$QUILL" kv check d/*.chunk missing >out 2>errors && false || [ $? -eq 3 ]
    [ "$(grep -c ^good out)" -eq 1 ]
    [ "$(wc -l <errors)" -eq 2 ]
    : >"d/$(printf 'b%.0s' {1..64}).kv"
    [ "$("$QUILL" kv list --json d | jq -c '.[] | select(.kind == "damaged") | [.bytes, .tokens]')" = "[0,null]" ]
    rm "d/$(printf 'b%.0s' {1..64}).kv"
    run -2 "$QUILL" kv remove d/*.chunk a.txt
    [ "$(ls d/*.chunk | wc -l)" -eq 2 ]
    run -0 "$QUILL" kv remove d/*.chunk
    [ -z "$(ls d/*.chunk 2>/dev/null)" ]
    # a pipe with a block's name is neither listed nor waited for
    mkfifo "d/$(printf 'a%.0s' {1..64}).kv"
    run -0 timeout 60 "$QUILL" kv list d
    [[ $output != *aaaa.kv* ]]
    run -6 "$QUILL" kv list nowhere
    run -2 "$QUILL" kv list
    [[ $output == *"kv list: 1 directory expected, found 0" ]]
}

@test "a damaged chunk is removed and computed again" {
    "$QUILL" chunk add --no-config -q --kv-dir d a.txt b.txt
    "${ask[@]}" --kv-dir d --chunk a.txt --chunk b.txt "Where is the blue cup?" >want
    file=$(ls -S d/*.chunk | head -1)
    printf '\377\377' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 3000)) conv=notrunc status=none
    run -0 --separate-stderr "$QUILL" --no-config --greedy -n 24 --kv-dir d --chunk a.txt --chunk b.txt "Where is the blue cup?"
    [[ $stderr == *"note: "*"damaged"*"computed again"* ]]
    [ ! -e "$file" ]
    "${ask[@]}" --kv-dir d --chunk a.txt --chunk b.txt "Where is the blue cup?" >again
    [ -e "$file" ]
    cmp want again
}

@test "a damaged chunk that cannot be removed is computed with the prompt" {
    [ "$(id -u)" -ne 0 ] || skip "root removes files from any directory"
    "$QUILL" chunk add --no-config -q --kv-dir d a.txt
    file=$(ls d/*.chunk)
    printf '\377\377' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 3000)) conv=notrunc status=none
    chmod 555 d
    run -0 --separate-stderr timeout 60 "$QUILL" --no-config --greedy -n 4 --kv-dir d --chunk a.txt "Where is the blue cup?"
    chmod 755 d
    [ -n "$output" ]
    [ "$(grep -c damaged <<<"$stderr")" -eq 1 ]
}

@test "a chunk larger than the directory may become is not saved, and no other file is removed for it" {
    seq 1 400 >long.txt
    "$QUILL" chunk add --no-config -q --kv-dir d,size=200k a.txt
    run -6 "$QUILL" chunk add --no-config --kv-dir d,size=200k long.txt
    [[ $output == *"204800 bytes at most expected (size=), "*" found"* ]]
    [ "$(ls d/*.chunk | wc -l)" -eq 1 ]
    run -0 "$QUILL" chunk add --no-config --kv-dir d,size=200k b.txt
}

@test "a store of another model is left alone and computed again" {
    "$MAKE_TINY" tiny.gguf
    "$QUILL" chunk add --no-config -q --kv-dir d -m tiny.gguf a.txt
    run -0 "$QUILL" --no-config -v --greedy -n 4 --kv-dir d --chunk a.txt "Where?"
    [[ $output == *"1 computed now"* ]]
    [ "$(ls d/*.chunk | wc -l)" -eq 2 ]
}

@test "nothing of a store that was killed is read" {
    seq 1 400 >long.txt
    for delay in 0.02 0.04 0.06 0.08 0.1; do
        "$QUILL" chunk add --no-config -q --kv-dir d long.txt a.txt b.txt many.txt & pid=$!
        sleep $delay
        kill -9 $pid 2>/dev/null || true
        wait $pid 2>/dev/null || true
        for file in d/*.chunk; do [ ! -e "$file" ] || "$QUILL" kv check "$file" >/dev/null; done
    done
    run -0 "$QUILL" chunk add --no-config --kv-dir d long.txt a.txt b.txt many.txt
}

@test "jobs with chunks answer as one prompt does" {
    "${ask[@]}" --deterministic --chunk a.txt --chunk b.txt "Where is the blue cup?" >one
    "${ask[@]}" --deterministic --chunk b.txt --chunk a.txt --blend cacheblend "Who has a red ball?" >two
    jq -cn --rawfile a a.txt --rawfile b b.txt '{id:1,chunks:[$a,$b],prompt:"Where is the blue cup?"},
        {id:2,chunks:[$b,$a],prompt:"Who has a red ball?"},{id:3,prompt:"Who are you?"},
        {id:4,chunks:[$a,$b],prompt:"Where is the blue cup?",n:2}' >jobs
    "$QUILL" batch --no-config -q --deterministic --temp 0 -n 24 --keep-order jobs >out
    [ "$(jq -r 'select(.id==1).text' out)" = "$(cat one)" ]
    [ "$(jq -r 'select(.id==2).text' out)" = "$(cat two)" ]
    [ "$(jq -r 'select(.id==4) | .choices[1].text // .texts[1] // .text' out | tail -1)" = "$(cat one)" ]
    run -2 "$QUILL" batch --no-config -q -n 4 <<<'{"id":1,"chunks":[" "],"prompt":"a"}'
    run -2 "$QUILL" batch --no-config -q -n 4 <<<'{"id":1,"chunks":"a","prompt":"a"}'
    run -2 "$QUILL" batch --no-config -q --blend all -n 4 <<<'{"id":1,"chunks":["a"],"prompt":"a"}'
}

@test "the number of chunks is not that of the files that may be open" {
    "$MAKE_TINY" tiny.gguf arch=llama tokens=llama seed=1 ctx=2048
    # With 50 chunks a job, and then all of them in one.
    jq -cn '[range(100) | "cat \(.)"] as $all | {raw:true,prompt:"so",max_tokens:1,temperature:0} as $job |
        (range(2) | range(2) | $job + {id:., chunks:$all[50*.:50*.+50]}), $job + {id:"all", chunks:$all}' >jobs
    (ulimit -n 40 && "$QUILL" batch --no-config -m tiny.gguf -c 2048 --blend epic,k=2 --keep-order jobs >in_memory 2>errors)
    [ ! -s errors ]
    [ "$(grep -c '"text"' in_memory)" -eq 5 ]
    # Files of --kv-dir are open together: as many as the system allows, whatever the limit at the start is.
    (ulimit -Sn 40 && "$QUILL" batch --no-config -m tiny.gguf -c 2048 --blend epic,k=2 --kv-dir d --keep-order jobs >in_files 2>errors)
    [ ! -s errors ]
    [ "$(ls d/*.chunk | wc -l)" -eq 100 ]
    diff <(jq -c '[.id, .text]' in_memory) <(jq -c '[.id, .text]' in_files)
}

@test "every layout and dense type takes chunks" {
    for options in "--kv-layout paged" "-ctk f32 -ctv f32" "-ctk bf16 -ctv bf16" "-ub 7" "-ctk f16 -ctv f32 --kv-layout paged --kv-block 5"; do
        "${ask[@]}" $options --deterministic --chunk a.txt --chunk b.txt --blend full "Where is the blue cup?" >full
        "${ask[@]}" $options --deterministic --chunk a.txt --chunk b.txt --blend cacheblend,ratio=1 "Where is the blue cup?" >again
        cmp full again
        "${ask[@]}" $options --chunk a.txt --chunk b.txt --blend epic "Where is the blue cup?"
    done
}

@test "--blend-error: K and V of the chunks against those of a prefill" {
    errors_of() { # MODE OPTIONS...
        "${ask[@]}" --deterministic --blend-error --chunk a.txt --chunk b.txt --blend "$@" "Where?" 2>&1 >/dev/null |
            tr -s ' \n' ' ' | sed -n 's/.*KV error //p'
    }
    for mode in full cacheblend,ratio=1 "epic,k=99 --kv-layout paged"; do
        # shellcheck disable=SC2086
        [ "$(errors_of $mode)" = "0 0 0 0 0 0 " ]
    done
    errors_of reuse | awk '{ exit !(NF == 6 && $1 < 0.001 && $3 > 0.001 && $6 > $2 && $6 < 1) }'
    { errors_of reuse; echo; errors_of cacheblend,ratio=0.5; } | awk '{ sum[NR] = $3 + $4 + $5 + $6 } END { exit !(sum[2] > 0 && sum[2] < sum[1]) }'
    run -2 "${ask[@]}" --blend-error "Where?"
    [[ $output == *"--blend-error: --chunk FILE expected"* ]]
}

@test "a chat takes chunks in front of a message, and keeps what it has computed" {
    printf 'Mia gave the green kite to Ben.\n' >c.txt
    talk() { # MODE OPTIONS...
        printf '%s\n' 'Who are you?' '/chunk a.txt' '/chunk b.txt' 'Where is the blue cup?' 'Who has a red ball?' /regen \
            '/chunk c.txt' 'Who has the green kite?' /stats | "${ask[@]}" -i --deterministic --blend "$@"
    }
    for options in "" "--kv-layout paged --kv-block 5" "--kv-dir d" "--raw -n 8 --ignore-eos"; do
        talk full $options >want 2>/dev/null
        talk cacheblend,ratio=1 $options >blended 2>stats
        cmp want blended
        [ -s want ]
        awk '$1 == 5 && $3 > 40 { found = 1 } END { exit !found }' stats # chunks were computed, and the cache is as it was
    done
    printf '%s\n' '/chunk a.txt' '/chunk b.txt' 'Where is the blue cup?' | "${ask[@]}" -i >chat
    "${ask[@]}" --chunk a.txt --chunk b.txt "Where is the blue cup?" >one
    cmp chat one
    echo 'Where is the blue cup?' | "${ask[@]}" -i --chunk a.txt --chunk b.txt >chat
    cmp chat one
}

@test "chunks in a chat: what is refused, dropped, saved" {
    printf '%s\n' /chunk '/chunk missing.txt' '/chunk a.txt' /clear 'Who are you?' '/chunk many.txt' 'What?' '/save talk.json' '/save --kv talk.json' |
        "$QUILL" --no-config --greedy -n 8 -i --chunk-split --- >out 2>errors || true
    grep -q '/chunk: a file expected' errors
    grep -q 'missing.txt' errors
    grep -q 'many.txt: 2 chunks of [0-9]* tokens, before the next message' errors
    grep -q 'computed separately and cannot be saved' errors
    [ ! -e talk.json.kv ]
    jq -e '.messages | map(.content) | .[0] == "Who are you?" and .[2] == "one text\n\nanother\n\nWhat?"' talk.json
}

@test "chunks need whole texts in the KV cache" {
    seq 1 120 >long.txt
    printf '%s\n' '/chunk long.txt' 'Who are you?' | "$QUILL" --no-config --greedy -n 8 -c 1024 -i --evict sinks,sink=4,window=32 >out 2>errors || [ $? -eq 2 ]
    grep -q 'the whole KV cache expected, found --evict' errors
    [ -s out ]
    "$MAKE_TINY" gemma3.gguf arch=gemma3 ctx=4096
    line="{\"id\":1,\"chunks\":[\"$(seq -s ' ' 1 120)\"],\"prompt\":\"Who?\",\"raw\":true,\"max_tokens\":3}"
    run -2 "$QUILL" batch --no-config -q -m gemma3.gguf <<<"$line"
    [[ $output == *"found a model with windows"*"--blend cacheblend"* ]]
    run -0 "$QUILL" batch --no-config -q -m gemma3.gguf --blend cacheblend <<<"$line"
}

@test "a chat with chunks stays one that cannot be saved when another chunk is computed" {
    printf '%s\n' '/chunk a.txt' 'Who are you?' '/chunk b.txt' '/save --kv talk.json' |
        "$QUILL" --no-config --greedy -n 8 -i >out 2>errors || true
    grep -q 'computed separately and cannot be saved' errors
    [ ! -e talk.json.kv ]
    printf '%s\n' '/chunk a.txt' 'Who are you?' '/chunk b.txt' 'What?' /undo 'Where is the blue cup?' |
        "${ask[@]}" -i --kv-dir d --kv-block 4 >out 2>errors
    [ -z "$(ls d/*.kv 2>/dev/null)" ]
}

@test "what cannot be a chunk" {
    : >empty.txt
    printf ' \n' >blank.txt
    printf 'text\0text' >nul.bin
    printf 'text\377' >latin.txt
    for file in empty.txt blank.txt nul.bin latin.txt; do
        run -2 "${ask[@]}" --chunk $file "Where?"
        [[ $output == *"$file"*"expected"* ]]
    done
    seq 1 2000 >long.txt
    run -5 "${ask[@]}" --chunk long.txt "Where?"
    [[ $output == *"tokens, but the context has room for 2047"* ]]
    run -6 "${ask[@]}" --chunk missing.txt "Where?"
    run -2 "${ask[@]}" --chunk a.txt --blend most "Where?"
    [[ $output == *"cacheblend,ratio=0.15"* ]]
    run -2 "${ask[@]}" --blend epic "Where?"
    run -2 "${ask[@]}" --beams 4 --chunk a.txt "Where?"
    [[ $output == *"--beams and --chunk: one of them expected, found both"* ]]
    for key in '"beams":4' '"best_of":4,"temperature":1'; do
        run -2 "$QUILL" batch --no-config -q <<<"{\"id\":1,\"chunks\":[\"a\"],\"prompt\":\"a\",$key}"
        [[ $output == *"and chunks: one of them expected, found both"* ]]
    done
    run -2 "${ask[@]}" --chunk a.txt --evict sinks "Where?"
    run -2 "${ask[@]}" --chunk a.txt -ctk q8_0 -ctv q8_0 "Where?"
    [[ $output == *"add -ctk f16 -ctv f16"* ]]
    "$MAKE_TINY" phi3.gguf arch=phi3
    run -3 "${ask[@]}" -m phi3.gguf --chunk a.txt "Where?"
    [[ $output == *"phi3"* ]]
}
