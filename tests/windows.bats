#!/usr/bin/env bats
# windows.bats: models some of whose layers have a sliding window, or chunks: one text whatever the mode, whether their
# keys and values are given up behind the window or kept, shared, saved or sent on.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/gemma2.gguf" arch=gemma2 seed=1 ctx=4096
    "$MAKE_TINY" "$TINY/gemma3.gguf" arch=gemma3 seed=2 ctx=4096
    "$MAKE_TINY" "$TINY/llama4.gguf" arch=llama4 seed=3 ctx=4096
    for _ in 1 2 3 4 5 6 7 8; do printf 'Once upon a time there was a small ship. '; done >"$TINY/long"
}

# answer MODEL OPTIONS...: 100 tokens behind the long prompt, the same bits in every mode
answer() {
    local model="$1"
    shift
    "$QUILL" -m "$TINY/$model.gguf" --raw --greedy --ignore-eos --deterministic -n 100 -f "$TINY/long" "$@"
}

@test "windows do not change a text: freed, kept, shared over runs, in small steps, with sealed KV" {
    for model in gemma2 gemma3 llama4; do
        answer $model >given_up
        [ -s given_up ]
        answer $model --kv-dir kv-$model >kept # which computes and saves all of it
        cmp given_up kept
        answer $model --kv-dir kv-$model -v >again 2>notes # and this one begins where the directory ends
        cmp given_up again
        grep -Eq ' [1-9][0-9]* cached' notes
        answer $model -ub 5 >small_steps
        cmp given_up small_steps
        answer $model --kv-block 8 >small_blocks
        cmp given_up small_blocks
        answer $model -ctk q8_0 -ctv q8_0 >sealed
        answer $model -ctk q8_0 -ctv q8_0 --kv-dir sealed-$model >sealed_kept
        cmp sealed sealed_kept
    done
}

@test "with windows a batch gives each prompt the text that it has alone" {
    for model in gemma2 gemma3 llama4; do
        same_alone "$TINY/$model.gguf" 60
    done
}

@test "with windows prefill and decode give the answer of one process" {
    for model in gemma2 gemma3 llama4; do
        answer $model >one
        "$QUILL" prefill -m "$TINY/$model.gguf" --raw --deterministic -f "$TINY/long" --kv-out - |
            "$QUILL" decode -m "$TINY/$model.gguf" --raw --greedy --ignore-eos --deterministic -n 100 --kv-in - >two
        cmp one two
    done
}

@test "layers with a window take memory for their window only, however long the context is" {
    kept() { "$QUILL" -m "$TINY/gemma3.gguf" --raw -c 4096 -n 1 -v "$@" hello 2>&1 >/dev/null | sed -n 's/^  KV cache *\([0-9.]*\) MB.*/\1/p'; }
    few=$(kept)
    all=$(kept --kv-dir kv)
    awk -v few="$few" -v all="$all" 'BEGIN { exit !(few > 0 && few < all / 2) }'
    "$QUILL" inspect -m "$TINY/gemma3.gguf" | grep -q 'window *12 tokens in 6 of 7 layers'
}

@test "eviction works in models with windows" {
    for plan in sinks,sink=4,window=60 shift h2o,heavy=40,recent=40; do
        "$QUILL" -m "$TINY/gemma3.gguf" --raw --greedy --ignore-eos -c 100 -n 150 --evict $plan --json hello >text
        grep -q '"completion_tokens": *150' text
        grep -qE '"decode_flops": *[1-9]' text # slots move forward, tokens stay tokens of the answer
    done
}

@test "with windows a message after /undo gets the answer that it got before" {
    chat() { "$QUILL" -m "$TINY/gemma3.gguf" -i --raw --greedy --ignore-eos -n 60 2>/dev/null; }
    printf 'Once upon a time\n' | chat >once
    printf 'Once upon a time\n/undo\nOnce upon a time\n' | chat >twice
    [ "$(cat once once | tr -d '\n\0' | od -c)" = "$(tr -d '\n\0' <twice | od -c)" ]
}
