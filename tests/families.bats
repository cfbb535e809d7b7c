#!/usr/bin/env bats
# families.bats: families whose layers have K and V of their own kinds (gemma4, deepseek2) through every mode: one text, or
# one line that refuses.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/gemma4.gguf" arch=gemma4 seed=1 ctx=4096
    "$MAKE_TINY" "$TINY/gemma4moe.gguf" arch=gemma4 n_experts=6 seed=2 ctx=4096
    "$MAKE_TINY" "$TINY/deepseek3.gguf" arch=deepseek2 q_rank=20 n_groups=4 seed=3 ctx=4096
    "$MAKE_TINY" "$TINY/deepseek2.gguf" arch=deepseek2 seed=4 ctx=4096
    for _ in 1 2 3 4 5; do printf 'Once upon a time there was a small ship. '; done >"$TINY/long"
}

ALL="gemma4 gemma4moe deepseek3 deepseek2"

# answer MODEL OPTIONS...: 40 tokens behind the long prompt, the same bits in every mode
answer() {
    local model="$1"
    shift
    "$QUILL" -m "$TINY/$model.gguf" --raw --greedy --ignore-eos --deterministic -n 40 -f "$TINY/long" "$@"
}

@test "one text: blocks, small steps, kept over runs, sent on, speculated, over sealed caches" {
    for model in $ALL; do
        answer $model >plain
        [ -s plain ]
        answer $model -ub 5 --kv-block 8 >small
        cmp plain small
        answer $model --kv-dir kv-$model >kept
        cmp plain kept
        answer $model --kv-dir kv-$model -v >again 2>notes
        cmp plain again
        grep -Eq ' [1-9][0-9]* cached' notes
        "$QUILL" prefill -m "$TINY/$model.gguf" --raw --deterministic -f "$TINY/long" --kv-out - |
            "$QUILL" decode -m "$TINY/$model.gguf" --raw --greedy --ignore-eos --deterministic -n 40 --kv-in - >sent
        cmp plain sent
        answer $model --speculate ngram >speculated
        cmp plain speculated
        answer $model -ctk kivi2 -ctv kivi2 >sealed
        answer $model -ctk kivi2 -ctv kivi2 -ub 7 --kv-dir sealed-$model >sealed_kept
        cmp sealed sealed_kept
        answer $model -ctk kivi2 -ctv kivi2 --kv-dir sealed-$model >sealed_again
        cmp sealed sealed_again
    done
}

@test "a batch and beams give each prompt the text that it has alone" {
    for model in $ALL; do
        same_alone "$TINY/$model.gguf" 30
        "$QUILL" -m "$TINY/$model.gguf" --raw --deterministic --beams 3 -n 12 'Once upon' >paged
        "$QUILL" -m "$TINY/$model.gguf" --raw --deterministic --beams 3 -n 12 --kv-block 4 'Once upon' >small
        cmp paged small
    done
}

@test "a chat takes back what was said" {
    for model in gemma4 deepseek3; do
        chat() { "$QUILL" -m "$TINY/$model.gguf" -i --raw --greedy --ignore-eos -n 30 2>/dev/null; }
        printf 'Once upon a time\n' | chat >once
        printf 'Once upon a time\n/undo\nOnce upon a time\n' | chat >twice
        [ "$(cat once once | tr -d '\n\0' | od -c)" = "$(tr -d '\n\0' <twice | od -c)" ]
    done
}

@test "one line says what does not go with them" {
    for model in gemma4 deepseek3; do
        run "$QUILL" -m "$TINY/$model.gguf" --raw -n 4 --evict sinks hello
        [ "$status" = 2 ]
        [[ "$output" == *"--evict: a model whose layers all have K and V of one shape expected"* ]]
        echo text >chunk
        run "$QUILL" -m "$TINY/$model.gguf" --raw -n 4 --chunk chunk hello
        [ "$status" = 2 ]
        [[ "$output" == *"--chunk: a model whose layers all have K and V of one shape expected"* ]]
    done
    run "$QUILL" -m "$TINY/deepseek3.gguf" --raw -n 4 -ctk q8_0 -ctv f16 hello
    [ "$status" = 2 ]
    [[ "$output" == *"-ctv F16: Q8_0 expected, as -ctk has it: V is a part of K"* ]]
    run "$QUILL" -m "$TINY/deepseek3.gguf" --raw -n 4 -ctk q8_0 --kv-rotate hello
    [ "$status" = 2 ]
    [[ "$output" == *"--kv-rotate: a model whose K and V are stored apart expected"* ]]
    "$QUILL" -m "$TINY/deepseek3.gguf" --raw -n 4 -ctk q8_0 hello # for both
}

@test "inspect, a plan and a file of KV say what is stored" {
    "$QUILL" inspect -m "$TINY/gemma4.gguf" >text
    grep -q '^window  *12 tokens in 4 of 6 layers, 2 KV heads of 8 there' text
    grep -q '^KV  *the last 3 layers use the K and V of earlier ones' text
    "$QUILL" inspect -m "$TINY/deepseek3.gguf" >text
    grep -q '^KV  *compressed: 32 + 8 elements a layer, for heads of 16 (V 16)' text
    grep -q 'none in the first 1 layers, of width 128' text
    # Two layers with a window, 2 heads of 8, one without, 1 head of 16: (2 * 2 * 8 + 16) * 2 * 4 bytes a slot
    "$QUILL" -m "$TINY/gemma4.gguf" --raw -c 512 -n 1 --kv-dir kv -v hello 2>&1 >/dev/null | grep -q 'KV cache .*512 slots of 384 B'
    # Three layers of 32 + 8 floats
    "$QUILL" -m "$TINY/deepseek3.gguf" --raw -c 512 -n 1 -v hello 2>&1 >/dev/null | grep -q 'KV cache .*512 slots of 480 B'
    "$QUILL" prefill -m "$TINY/gemma4.gguf" --raw --kv-out file.kv hello
    "$QUILL" kv info file.kv | grep -q '^shape  *3 layers, 1 KV heads of 16 elements; the last 2 with a window, 2 KV heads of 8 elements'
    "$QUILL" prefill -m "$TINY/deepseek3.gguf" --raw --kv-out other.kv hello
    "$QUILL" kv info other.kv | grep -q '^shape  *3 layers, 1 KV heads of 40 elements, V in K'
    "$QUILL" kv diff other.kv other.kv | grep -q same
}
