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

@test "a batch of deepseek2 on the GPU preempts sequences, shares prompts, and gives the CPU's answers" {
    for i in 1 2 3 4; do
        printf '{"id":"%d","prompt":"a prompt of some length %d","n_predict":%d,"seed":%d,"ignore_eos":true}\n' $i $i $((14 + i)) $i
    done >jobs.jsonl
    echo '{"id":"5","prompt":"two of it","n":2,"n_predict":6,"seed":5}' >>jobs.jsonl
    family arch=deepseek2 n_experts=3
    for device in cpu cuda; do
        "$TWIN" batch --device $device -v -c 64 --kv-block 8 --kv-mem 35k jobs.jsonl >$device.jsonl 2>$device.err </dev/null
        grep -q "5 answered, 0 failed" $device.err
        batch_texts $device.jsonl >$device.texts
    done
    grep -Eq "[1-9][0-9]* preemptions" cuda.err
    diff cpu.texts cuda.texts
}

@test "--kv-dir and beams with gemma4 and deepseek2 on the GPU" {
    printf 'a prompt of some length, longer than a block of thirty-two slots, and then than another one' >prompt
    for arch in gemma4 deepseek2; do
        family arch=$arch
        "$TWIN" --device cpu --greedy --ignore-eos -n 4 -f prompt </dev/null >want
        for run in 1 2; do
            "$TWIN" --device cuda --kv-dir $arch -v --greedy --ignore-eos -n 4 -f prompt </dev/null 2>errors | cmp - want
        done
        grep -q "^KV dir     [1-9][0-9]* slots from $arch" errors
        for device in cpu cuda; do "$TWIN" --device $device --beams 3 -n 4 "one two" </dev/null >$device; done
        cmp cpu cuda
    done
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

@test "matrices of different types in a layer: steps of 9 to 16 rows take what the narrowest kernel allows" {
    family arch=muse-glimmer dim=64
    "$TWIN" quantize -q family.gguf mixed.gguf Q8_0 --tensor 'blk.*.attn_gate.weight=F32'
    export QUILL_MODEL=mixed.gguf
    for words in 3 5 9; do
        text="$(printf 'one two %.0s' $(seq $words))"
        "$TWIN" -q --device cpu --isa scalar --raw --greedy --ignore-eos -n 4 "$text" >want
        "$TWIN" -q --device cuda --raw --greedy --ignore-eos -n 4 "$text" | cmp - want
    done
}
