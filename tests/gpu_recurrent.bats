#!/usr/bin/env bats
# Models with recurrent layers on a GPU, tested without one: quill_twin is quill whose GPU is a twin in host memory.

load rig/helpers

models() {
    for arch in qwen3next qwen35 lfm2 granitehybrid nemotron_h_moe; do "$MAKE_TINY" "$TINY/$arch.gguf" arch=$arch ctx=256; done
    export QUILL_MODEL="$TINY/qwen35.gguf"
}

setup() {
    enter
    [ -x "$TWIN" ] # built by `make test-build`
}

PROMPT="a prompt of some length, with more rows than the kernels for few rows take"

@test "texts are the same on the GPU, on the CPU, and with layers on both" {
    for arch in qwen3next qwen35 lfm2 granitehybrid nemotron_h_moe; do
        "$TWIN" -m "$TINY/$arch.gguf" --device cpu --greedy --ignore-eos -n 6 "$PROMPT" </dev/null >want
        for how in "" "-ngl 2"; do
            # shellcheck disable=SC2086 # words
            "$TWIN" -m "$TINY/$arch.gguf" --device cuda $how --greedy --ignore-eos -n 6 "$PROMPT" </dev/null >got 2>errors
            cmp want got
        done
    done
}

@test "decoding steps are graphs, and the memory plan counts the states where they are" {
    "$TWIN" --device cuda -v --greedy --ignore-eos -n 8 "$PROMPT" </dev/null 2>errors >got
    tr -s '\n ' ' ' <errors | grep -Eq " graphs [1-9][0-9]* steps of few rows, [1-9][0-9]* graph launches .*, [12] captured"
    kv() { "$TWIN" --dry-run -c 256 "$@" hi 2>&1 </dev/null | sed -n 's/.*on the GPU.*KV cache \([0-9.]*\).*/\1/p'; }
    all=$(kv --device cuda) last=$(kv -ngl 1) # of the last layer, which has attention
    python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(not a > b > 0)' "$all" "$last"
}

@test "batches give the CPU's answers, with preempted sequences, steps begun ahead and several answers" {
    for i in 1 2 3 4; do
        printf '{"id":"%d","prompt":"a prompt of some length %d","n_predict":%d,"seed":%d,"ignore_eos":true}\n' "$i" "$i" $((10 + 3 * i)) "$i"
    done >jobs.jsonl
    echo '{"id":"5","prompt":"two of it","n":2,"n_predict":6,"seed":5}' >>jobs.jsonl
    for plan in "qwen35 160k" "lfm2 30k"; do # the one's memory limits sequences, the other's gets crowded
        for device in cpu cuda; do
            "$TWIN" batch -m "$TINY/${plan% *}.gguf" --device $device -v -c 64 --kv-block 8 --kv-mem "${plan#* }" jobs.jsonl >$device.jsonl 2>$device.err </dev/null
            grep -q "5 answered, 0 failed" $device.err
            batch_texts $device.jsonl >$device
        done
        grep -Eq "^sampling   [1-9].* tokens on the GPU, [1-9].* ahead of the host" cuda.err
        diff cpu cuda
    done
    grep -Eq "[1-9][0-9]* preemptions" cuda.err
}

@test "a chat gives the CPU's turns, also after /regen and /undo" {
    "$MAKE_TINY" chat.gguf arch=qwen35 template=chatml ctx=512
    for device in cpu cuda; do
        printf 'one\ntwo\n/regen\n/undo\nthree\n' | "$TWIN" -i -m chat.gguf --device $device --seed 3 -n 5 >$device
    done
    [ -s cpu ]
    cmp cpu cuda
}

@test "speculation and beams give the text of plain decoding" {
    "$TWIN" --device cpu --greedy --ignore-eos -n 12 "$PROMPT" </dev/null >want
    "$TWIN" --device cuda --speculate ngram --greedy --ignore-eos -n 12 "$PROMPT" </dev/null >got
    cmp want got
    for device in cpu cuda; do "$TWIN" --device $device --beams 3 -n 5 "$PROMPT" </dev/null >$device; done
    cmp cpu cuda
}

@test "KV files and --kv-dir carry the states to the GPU and from it" {
    printf '%s' "$PROMPT" >prompt
    for from in cpu "cuda -ngl 2"; do
        # shellcheck disable=SC2086 # words
        "$TWIN" prefill -q --device $from -f prompt --kv-out some.kv 2>/dev/null
        "$TWIN" kv check some.kv | grep -q '^good'
        for to in cpu cuda; do "$TWIN" decode -q --device $to --kv-in some.kv --greedy --ignore-eos -n 5 >$to; done
        cmp cpu cuda
    done
    for run in 1 2; do
        "$TWIN" --device cuda --kv-dir dir -v --greedy -n 3 -f prompt </dev/null >text$run 2>errors
    done
    grep -q "^KV dir     [1-9][0-9]* slots from dir" errors
    cmp text1 text2
}

@test "experts stay on the CPU where --cpu-moe says so, and the text is the same" {
    "$TWIN" -m "$TINY/qwen3next.gguf" --device cpu --greedy -n 4 "$PROMPT" </dev/null >want
    "$TWIN" -m "$TINY/qwen3next.gguf" --device cuda --cpu-moe --greedy -n 4 "$PROMPT" </dev/null >got
    cmp want got
}
