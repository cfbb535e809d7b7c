#!/usr/bin/env bats
# The trainer of the built-in model, where PyTorch is installed: kernels against plain functions, resuming, the GGUF.

load rig/helpers

@test "training kernels, resuming and the written model are correct" {
    python="${QUILL_PYTHON:-python3}"
    "$python" -c "import torch, tokenizers, gguf" 2>/dev/null || skip "$python has no torch, tokenizers and gguf"
    "$python" "$BATS_TEST_DIRNAME/check_training.py" "$QUILL" "$PWD"
}
