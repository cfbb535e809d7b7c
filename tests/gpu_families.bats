#!/usr/bin/env bats
# gemma4, whose layers differ and share K and V, and deepseek2, whose K and V are compressed, on a GPU, tested without one:
# quill_twin is quill whose GPU is a twin in host memory.

load rig/helpers

setup() {
    enter
    [ -x "$TWIN" ] # built by `make test-build`
}

# family ARGS...: writes family.gguf, whose layers differ, share K and V, or compress them
family() {
    "$MAKE_TINY" family.gguf ctx=512 "$@"
    export QUILL_MODEL=family.gguf
}
say() { "$TWIN" -q "$@" --greedy --ignore-eos -n 4 "one two one two" </dev/null; }

# expect_same LAYERS ARGS...: the model says the same on both devices, with that many layers on the GPU, with drafts,
# in a batch, and with the KV of the other device
expect_same() {
    family "${@:2}"
    say --device cpu >want
    say -ngl "$1" | cmp - want
    say --device cuda --speculate ngram | cmp - want
    "$TWIN" prefill -q --device cuda -ctk q8_0 -ctv q8_0 -f text --kv-out - </dev/null |
        "$TWIN" decode --device cpu -ctk q8_0 -ctv q8_0 --greedy -n 3 --kv-in - >there
    "$TWIN" -q --device cpu -ctk q8_0 -ctv q8_0 --greedy -n 3 -f text </dev/null | cmp - there
    for device in cpu cuda; do
        "$TWIN" batch --device $device -c 64 --kv-block 8 jobs.jsonl >$device.jsonl 2>$device.err </dev/null
        batch_texts $device.jsonl >$device.texts
    done
    diff cpu.texts cuda.texts
}

@test "gemma4 and deepseek2 on the GPU: the texts of the CPU, in batches, with drafts and with KV of the other device" {
    for i in 1 2; do printf '{"id":"%d","prompt":"a prompt %d","n_predict":3,"seed":%d}\n' $i $i $i; done >jobs.jsonl
    echo "more rows than fused kernels take, which is 32" >text
    expect_same 5 arch=gemma4
    expect_same 2 arch=deepseek2 q_rank=24 n_groups=4 n_layers=2
    family arch=gemma4 n_experts=6 n_layers=3
    say --device cpu >want
    say --device cuda | cmp - want
    say -ngl 2 --cpu-moe | cmp - want
}

@test "layers that share K and V stay on one device, and the plan counts what the GPU gets" {
    family arch=gemma4 # the last three of six layers use K and V of the second and the third
    [ "$(code "$TWIN" -ngl 3 hi)" -eq 2 ]
    grep -q "^quill: -ngl 3: .* try -ngl 5, or -ngl 0" errors
    [ "$(code "$TWIN" -ngl 5 -n 1 hi)" -eq 0 ]
    kv() { "$TWIN" --dry-run -c 256 -ctk f16 -ctv f16 "$@" hi 2>&1 </dev/null | sed -n 's/.*on the GPU.*KV cache \([0-9.]*\).*/\1/p'; }
    [ "$(kv --device cuda)" != "$(kv -ngl 5)" ]
    family arch=deepseek2 head_dim=128 # three layers of 256 + 64 values a slot, once for K and V
    [ "$(kv --device cuda)" = "$(python3 -c 'print(f"{3 * 256 * 320 * 2 * 1e-6:.2f}")')" ]
}
