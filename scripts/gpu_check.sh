#!/usr/bin/env bash
# On a machine with a GPU and the CUDA toolkit, in under 8 minutes, downloading nothing: builds, tests on the GPU,
# benchmarks; writes one JSON and one markdown table.
#   scripts/gpu_check.sh [DIR]         results in DIR (default: build/gpu)
#   QUILL_TEST_DATA=DIR                also the golden logits there (golden/tokens.txt, golden/*/X.gguf with X.f32)
#   SECONDS_FOR_ALL=480                benchmarks that would end later are left out, and named
#   QUILL=FILE                         that binary, instead of building one
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-build/gpu}
budget=${SECONDS_FOR_ALL:-480}
export QUILL_MODEL='' XDG_CACHE_HOME
failed=0
results=()

say() { printf '%4ds  %s\n' "$SECONDS" "$*"; }
left() { echo $((budget - SECONDS)); }
die() {
  echo "gpu_check: $*" >&2
  exit 1
}
fail() {
  failed=$((failed + 1))
  say "FAILED: $*"
}

command -v nvidia-smi >/dev/null && gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1) || gpu=
[ -n "$gpu" ] || die "no GPU: nvidia-smi names none; run it on a machine that has one (make test checks the kernels without)"
for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc "$(command -v nvcc || true)"; do
  [ -n "$nvcc" ] && [ -x "$nvcc" ] && break
  nvcc=
done
[ -n "$nvcc" ] || die "no nvcc in CUDA_HOME, /usr/local/cuda or PATH: the toolkit is needed"
command -v python3 >/dev/null || die "no python3, which compares logits and writes the tables"

mkdir -p "$out"
out=$(cd "$out" && pwd)
XDG_CACHE_HOME=$out/cache # this run's ceilings are its own
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
say "$gpu, driver $driver, $("$nvcc" --version | sed -n 's/.*release //p'), commit $commit"

# ---- build ----
[ -n "${QUILL:-}" ] || make -j"$(nproc)" CUDA_ARCH=native quill >"$out/build.log" 2>&1 ||
  die "it does not build: $(tail -3 "$out/build.log"); all of it is in $out/build.log"
quill=${QUILL:-$PWD/quill}
version=$("$quill" --version)
say "${version//$'\n'/; }"
[[ $version =~ CUDA:\ [0-9] ]] || die "$quill: a build with CUDA expected, one without found: see $out/build.log"

# ---- tests on the GPU ----
tiny=$out/tiny
mkdir -p "$tiny"

tokens=1,5,9,17,33,4,8,15,16,23,42,2,7,11,13,19,29,31,37,41
logits() { # logits FILE OUT OPTIONS...
  local file=$1 to=$2
  shift 2
  "$quill" logits -m "$file" --tokens "$tokens" "$@" >"$to" 2>"$out/last.err"
}
compare() { # compare NAME LIMIT WANT GOT
  python3 - "$@" <<'PYTHON' || fail "$1"
import array, math, sys
name, limit, *files = sys.argv[1:]
want, got = (array.array("f", open(f, "rb").read()) for f in files)
d = math.sqrt(sum((a - b) ** 2 for a, b in zip(want, got)) / sum(a * a for a in want))
print(f"       {name:40} {d:.1e}")
sys.exit(not (len(want) == len(got) and d <= float(limit)))
PYTHON
}
near() { # near NAME LIMIT FILE: the GPU's logits against the scalar CPU's
  if logits "$3" "$out/a.f32" --device cpu --isa scalar -ctk f32 -ctv f32 &&
    logits "$3" "$out/b.f32" --device cuda -ngl "${4:-all}"; then
    compare "$1" "$2" "$out/a.f32" "$out/b.f32"
  else fail "$1: $(cat "$out/last.err")"; fi
}
say "logits of small random models, GPU against scalar CPU"
for type in F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS; do
  file=$tiny/$type.gguf
  "$quill" bench --shape dim=512,layers=3,heads=8,kv_heads=2,ffn=1024,vocab=2048 --type $type --save "$file" -p 0 -n 0 -q
  case $type in F32) limit=1e-4 ;; F16 | BF16) limit=2e-2 ;; *) limit=5e-2 ;; esac
  near "$type" $limit "$file"
done
near "Q8_0, 2 of 3 layers on the GPU" 5e-2 "$tiny/Q8_0.gguf" 2
say "the same with every type of KV, over groups that are sealed on the way"
tokens=$(seq -s, 3 102) longer=$tokens
for types in "f16 f16" "f16 f16 --kv-rotate" "fp8 fp8" "q8_0 q8_0" "q4_0 q4_0 --kv-rotate" "kivi2 kivi2" "q8_0 q4_0" "kivi2 f16"; do
  read -r k v rotate <<<"$types"
  for steps in 2048 40 7; do # in one piece, in tiles that begin inside a group, by the fused kernels
    # shellcheck disable=SC2086 # no word or one
    if logits "$tiny/F32.gguf" "$out/a.f32" --device cpu --isa scalar -ctk "$k" -ctv "$v" $rotate &&
      logits "$tiny/F32.gguf" "$out/b.f32" --device cuda -ctk "$k" -ctv "$v" $rotate -ub $steps; then
      compare "KV $types, -ub $steps" 1e-2 "$out/a.f32" "$out/b.f32"
    else fail "KV $types: $(cat "$out/last.err")"; fi
  done
done
if [ -n "${QUILL_TEST_DATA:-}" ]; then # logits of a float64 forward from outside
  tokens=$(cat "$QUILL_TEST_DATA/golden/tokens.txt")
  for file in "$QUILL_TEST_DATA"/golden/*/*.gguf; do
    case $file in */arch/* | */F32.gguf) limit=1e-4 ;; */F16.gguf | */BF16.gguf) limit=2e-2 ;; *) limit=5e-2 ;; esac
    if "$quill" logits -m "$file" --tokens "$tokens" --device cuda >"$out/b.f32" 2>"$out/last.err"; then
      compare "golden $(basename "$file")" $limit "${file%.gguf}.f32" "$out/b.f32"
    else fail "$file: $(cat "$out/last.err")"; fi
  done
fi

say "texts, GPU against scalar CPU"
text() { "$quill" --seed "$1" --raw -n 200 --json "${@:2}" "Once upon a time" </dev/null 2>"$out/last.err"; }
part() { # part WANT GOT: greedy texts part only where the specification's two best tokens were closer than int8 rounds
  python3 - "$@" <<'PYTHON'
import json, sys
MARGIN = 0.5
want, got = (json.load(open(f))["tokens"] for f in sys.argv[1:])
for i, (a, b) in enumerate(zip(want, got)):
    if a["id"] == b["id"]:
        continue
    margin = a["top"][0]["logprob"] - a["top"][1]["logprob"]
    print(f"       greedy: parts at token {i}, where the CPU's two best are {margin:.3f} apart (up to {MARGIN} may)")
    sys.exit(margin > MARGIN or b["id"] != a["top"][1]["id"])
print(f"       greedy: all {len(want)} tokens as on the CPU")
sys.exit(len(want) != len(got))
PYTHON
}
same() { # same A B: the texts of two answers in JSON
  python3 -c 'import json, sys; a, b = (json.load(open(f))["text"] for f in sys.argv[1:]); sys.exit(a != b)' "$@"
}
if [[ $version =~ model:\ none ]]; then say "skipped: no model is built in"; else
  if text 1 --device cpu --isa scalar --greedy --logprobs 2 >"$out/cpu.json" &&
    text 1 --device cuda --greedy --logprobs 2 >"$out/gpu.json"; then
    part "$out/cpu.json" "$out/gpu.json" || fail "the greedy text"
  else fail "the greedy text: $(cat "$out/last.err")"; fi
  for how in "-ctk q8_0 -ctv q8_0" "-ctk kivi2 -ctv q4_0 --kv-rotate" "-c 128 --evict sinks,window=96" "-c 128 --evict h2o,heavy=64,recent=48"; do
    # shellcheck disable=SC2086 # words
    if text 1 --device cpu --isa scalar --greedy --logprobs 2 $how >"$out/cpu.json" &&
      text 1 --device cuda --greedy --logprobs 2 $how >"$out/gpu.json"; then
      say "$how"
      part "$out/cpu.json" "$out/gpu.json" || fail "the greedy text with $how"
    else fail "the greedy text with $how: $(cat "$out/last.err")"; fi
  done
  for seed in 1 2 3; do
    if text $seed --device cuda >"$out/gpu.json" && text $seed --device cuda >"$out/again.json" &&
      text $seed --device cuda --logprobs 0 >"$out/host.json"; then
      same "$out/gpu.json" "$out/again.json" || fail "seed $seed: the same run gave another text"
      same "$out/gpu.json" "$out/host.json" || fail "seed $seed: drawn on the GPU and drawn by the host differ"
      say "seed $seed: the same again, and with the host's draws"
    else fail "seed $seed: $(cat "$out/last.err")"; fi
  done
fi

if command -v compute-sanitizer >/dev/null && [ "$(left)" -gt 300 ]; then
  for tool in memcheck racecheck; do
    for how in "--tokens 1,2,3,4,5,6,7,8,9,10" "--tokens $longer -ub 40 -ctk kivi2 -ctv q8_0 --kv-rotate"; do
      # shellcheck disable=SC2086 # words
      if compute-sanitizer --tool $tool --error-exitcode 9 "$quill" logits -m "$tiny/Q4_K.gguf" $how \
        --device cuda >/dev/null 2>"$out/$tool.log"; then say "compute-sanitizer $tool: clean"
      elif [ $? -eq 9 ]; then fail "compute-sanitizer $tool: $out/$tool.log"
      else say "skipped: compute-sanitizer $tool does not run here ($(tail -1 "$out/$tool.log"))"; fi
    done
  done
fi

# ---- benchmarks ----
say "ceilings"
"$quill" bench --roofline -p 0 -n 0 --device cuda -o json >"$out/roofline.json" || fail "bench --roofline"

bench() { # bench NAME SECONDS OPTIONS...: what it takes at most is left out when there is no time
  local name=$1 seconds=$2
  shift 2
  if [ "$(left)" -lt "$seconds" ]; then
    say "left out for lack of time: $name"
    return 0
  fi
  if timeout "$seconds" "$quill" bench --device cuda -q -o json "$@" >"$out/$name.json" 2>"$out/last.err"; then
    results+=("$out/$name.json")
    say "$name"
  else fail "$name: $(tail -1 "$out/last.err")"; fi
}
for type in BF16 Q8_0 Q4_0 Q4_K; do
  bench "1b-$type" 40 --shape 1b --type $type -p 512 -n 64 -r 3
  bench "8b-$type" 90 --shape 8b --type $type -p 512 -n 64 -r 3
done
for type in BF16 Q4_K; do
  bench "8b-$type-pp4096" 60 --shape 8b --type $type -p 4096 -n 0 -r 3
  for depth in 4096 32768; do bench "8b-$type-d$depth" 60 --shape 8b --type $type -p 0 -n 32 -r 2 -d $depth; done
  for kv in q8_0 kivi2; do
    bench "8b-$type-d32768-$kv" 60 --shape 8b --type $type -p 0 -n 32 -r 2 -d 32768 -ctk $kv -ctv $kv
  done
  for n in 8 32; do bench "8b-$type-x$n" 60 --shape 8b --type $type -p 0 -n 32 -r 2 --sequences $n -d 1024; done
done
if [ "$(left)" -gt 60 ] && python3 -c 'import torch, transformers' 2>/dev/null; then
  timeout "$(left)" python3 scripts/bench_transformers.py >"$out/transformers.json" 2>"$out/last.err" ||
    fail "transformers: $(tail -1 "$out/last.err")"
else say "skipped: transformers is not installed, or no time is left"; fi

# ---- one JSON, one table ----
python3 - "$out" "$gpu" "$driver" "$commit" "$failed" "${results[@]}" <<'PYTHON'
import json, os, sys
out, gpu, driver, commit, failed, *files = sys.argv[1:]
load = lambda f: json.load(open(f)) if os.path.exists(f) and os.path.getsize(f) else None
everything = {"gpu": gpu, "driver": driver, "commit": commit, "failed": int(failed), "roofline": load(out + "/roofline.json"),
              "benchmarks": [load(f) for f in files], "transformers": load(out + "/transformers.json")}
json.dump(everything, open(out + "/gpu_check.json", "w"), indent=1)
ceiling = ((everything["roofline"] or {}).get("machine") or {}).get("gpu") or {}
lines = [f"{gpu}, driver {driver}, commit {commit}", "", "| model | type | test | tok/s | TFLOP/s | GB/s | of peak |",
         "|---|---|---|---:|---:|---:|---:|"]
for run in everything["benchmarks"]:
    for r in run["results"]:
        peak = ceiling.get("copy_gbs" if r["phase"] == "decode" else "product_tflops")
        rate = r["gb_s"] if r["phase"] == "decode" else r["tflop_s"]
        share = f"{100 * rate / peak:.0f}%" if peak else "-"
        lines.append(f"| {run['model']['name']} | {run['model']['type']} | {r['test']} | {r['tok_s']:.1f} | {r['tflop_s']:.1f} "
                     f"| {r['gb_s']:.0f} | {share} |")
for r in (everything["transformers"] or {}).get("results", []):
    lines.append(f"| {r['model']} (transformers, {r['how']}) | BF16 | {r['test']} | {r['tok_s']:.1f} | - | - | - |")
open(out + "/gpu_check.md", "w").write("\n".join(lines) + "\n")
print("\n".join(lines))
PYTHON
say "$out/gpu_check.json, $out/gpu_check.md"
[ "$failed" -eq 0 ] || die "$failed checks failed, named above"
