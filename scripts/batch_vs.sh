#!/usr/bin/env bash
# Compares the throughput of quill batch with running one job after the other, and with llama.cpp's llama-batched-bench.
#
#   scripts/batch_vs.sh MODEL.gguf QUILL [LLAMA_BATCHED_BENCH]
#
# JOBS=64 of PROMPT=128 tokens, TOKENS=64 generated each; WIDTHS="64 16" sequences at once, of which JOBS must be a
# multiple; THREADS=N for both (the number of processors). ALONE=8 jobs are run one after the other, and their time is
# scaled to all jobs. The jobs share no prompt. A prompt consists of digits, each one token in the models that `quill
# bench --shape S --type T --save FILE` makes; the last column has the prompt's number of tokens.
set -euo pipefail
export XDG_CONFIG_HOME=/dev/null # ignores the user's configuration

if [ $# -lt 2 ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
model=$1 quill=$2 llama=${3:-} jobs=${JOBS:-64} prompt=${PROMPT:-128} tokens=${TOKENS:-64} alone=${ALONE:-8}
threads=${THREADS:-$(nproc)} widths=${WIDTHS:-64 16}
for file in "$model" "$quill" ${llama:+"$llama"}; do
    [ -r "$file" ] || { echo "batch_vs.sh: $file: cannot be read" >&2; exit 2; }
done
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# Writes N jobs with different digits.
lines() {
    awk -v n="$1" -v length_of="$((prompt - 2))" -v tokens="$tokens" 'BEGIN {
        srand(7)
        for (; n > 0; n--) {
            text = ""
            for (i = 0; i < length_of; i++) text = text int(10 * rand())
            printf "{\"prompt\":\"%s\",\"raw\":true,\"max_tokens\":%d,\"ignore_eos\":true,\"greedy\":true}\n", text, tokens
        }
    }'
}

row() { # row NAME WIDTH SECONDS PROMPT-TOKENS-A-JOB
    awk -v name="$1" -v width="$2" -v s="$3" -v of="$4" -v jobs="$jobs" -v tokens="$tokens" 'BEGIN {
        printf "%-20s %6d %10.1f %16.1f %10s\n", name, width, s, jobs * tokens / s, of
    }'
}

# NAME WIDTH JOBS: prints the seconds of all jobs.
ours() {
    lines "$3" >"$work/jobs"
    "$quill" batch -m "$model" -t "$threads" -np "$2" -v "$work/jobs" >"$work/out" 2>"$work/said"
    seconds=$(sed -n 's/^jobs .* failed, \([0-9.]*\) s, .*/\1/p' "$work/said")
    given=$(sed -n 's/.* \([0-9]*\) in prompts.*/\1/p' "$work/said")
    row "$1" "$2" "$(awk -v s="$seconds" -v n="$3" -v all="$jobs" 'BEGIN { print s * all / n }')" "$((given / $3))"
}

echo "$(basename "$model"), $threads threads: $jobs jobs of $prompt + $tokens tokens"
printf '%-20s %6s %10s %16s %10s\n' '' 'width' 'seconds' 'generated tok/s' 'prompt'
for width in $widths; do
    [ -z "$llama" ] || "$llama" -m "$model" -t "$threads" -c $((width * (prompt + tokens))) -npp "$prompt" -ntg "$tokens" \
        -npl "$width" --output-format jsonl 2>/dev/null | sed -n 's/^{.*"t": \([0-9.]*\),.*/\1/p' | while read -r seconds; do
        row llama-batched-bench "$width" "$(awk -v s="$seconds" -v n="$jobs" -v w="$width" 'BEGIN { print s * n / w }')" "$prompt"
    done
    ours 'quill batch' "$width" "$jobs"
done
ours 'quill, one by one' 1 "$alone"
