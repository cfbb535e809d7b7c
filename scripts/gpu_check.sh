#!/usr/bin/env bash
# Builds, tests and benchmarks quill on a machine with a GPU, in under 8 minutes and without downloads; the most important
# steps come first. After every step it rewrites a JSON file and a markdown table, so that they exist however it ends; at
# the end it writes an archive of all logs. It names missing tools and continues without them.
#   scripts/gpu_check.sh [DIR]         results in DIR (default: build/gpu)
#   QUILL_TEST_DATA=DIR                also compares golden logits (golden/tokens.txt, golden/*/X.gguf with X.f32, and
#                                      golden/families/tokens.txt, X.gguf with X.logits.f32), and the scalar CPU's of
#                                      outside/X.gguf (`test_outside DIR` writes them)
#   SECONDS_FOR_ALL=480                steps that would end later are skipped and listed
#   QUILL=FILE                         uses this binary instead of building one; the kernels' tests, build/release/tests/gpu_*,
#                                      run if they exist, with a libcmocka.so.0 beside them if the machine has none
#                                      (`make gpu-tests CUDA_ARCH=sm_90` builds all of them without a GPU)
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-build/gpu}
budget=${SECONDS_FOR_ALL:-480}
export QUILL_MODEL='' XDG_CONFIG_HOME=/dev/null XDG_CACHE_HOME
failures=()
left_out=()
results=()
pids=()
ended='cut short'

say() { printf '%4ds  %s\n' "$SECONDS" "$*"; }
left() { echo $((budget - SECONDS)); }
die() {
  echo "gpu_check: $*" >&2
  exit 1
}
fail() {
  failures+=("$*")
  say "FAILED: $*"
}
skip() {
  left_out+=("$*")
  say "left out: $*"
}

command -v nvidia-smi >/dev/null && gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | sed -n 1p) || gpu=
[ -n "$gpu" ] || die "no GPU: nvidia-smi names none; run it on a machine that has one (make test checks the kernels without)"
command -v python3 >/dev/null || die "no python3, which compares logits and writes the tables"
for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc "$(command -v nvcc || true)"; do
  [ -n "$nvcc" ] && [ -x "$nvcc" ] && break
  nvcc=
done

mkdir -p "$out"
results_in=$(cd "$out" && pwd)
out=$(mktemp -d) # intermediate files
XDG_CACHE_HOME=$out/cache # this run measures its own ceilings
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | sed -n 1p)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
say "$gpu, driver $driver, $([ -z "$nvcc" ] || "$nvcc" --version | sed -n 's/.*release //p'), commit $commit"

# Models that are used more than once are stored in memory if there is room; in a container /dev/shm is often tiny.
room() { df -Pk "$1" 2>/dev/null | awk 'NR == 2 { print int($4 / 1048576) }'; } # GiB
memory=$(room /dev/shm) || true
if [ "${memory:-0}" -ge 40 ] && models=$(mktemp -d /dev/shm/quill.XXXXXX 2>/dev/null); then :
else models=$(mktemp -d); fi
say "models go to $models, which has $(room "$models") GiB"

# ---- one JSON, one table ----
report() {
  python3 - "$results_in" "$out" "$gpu" "$driver" "$commit" "$ended" "${#failures[@]}" "${#left_out[@]}" "${failures[@]}" "${left_out[@]}" \
    "${results[@]}" <<'PYTHON' || say "the tables could not be written"
import glob, json, statistics, sys
to, out, gpu, driver, commit, ended, n_failed, n_left_out, *rest = sys.argv[1:]
failed, rest = rest[:int(n_failed)], rest[int(n_failed):]
left_out, files = rest[:int(n_left_out)], rest[int(n_left_out):]


def load(name):
    try:
        return json.load(open(name))
    except (OSError, ValueError):
        return None


runs = [{"run": f.rsplit("/", 1)[1][:-5], **(load(f) or {"results": []})} for f in files]
everything = {"gpu": gpu, "driver": driver, "commit": commit, "ended": ended, "failed": failed, "left_out": left_out,
              "roofline": load(out + "/roofline.json"), "benchmarks": runs, "transformers": load(out + "/transformers.json")}
json.dump(everything, open(to + "/gpu_check.json", "w"), indent=1)
ceiling = ((everything["roofline"] or {}).get("machine") or {}).get("gpu") or {}
lines = [f"{gpu}, driver {driver}, commit {commit}: {ended}", ""]
lines += [f"- {name}: {value}" for name, value in ceiling.items()] + [""]
lines += ["| run | type | test | tok/s | TFLOP/s | GB/s | of peak |", "|---|---|---|---:|---:|---:|---:|"]
tried = {}  # what -> [plain, tried] -> tok/s of the runs in turns
for run in runs:
    for r in run["results"]:
        if run["run"].startswith("try-"):
            what, how, _ = run["run"].rsplit(".", 2)
            tried.setdefault(f"{what[4:]} {r['test']}", {}).setdefault(how, []).append(r["tok_s"])
            continue
        peak = ceiling.get("copy_gbs" if r["phase"] == "decode" else "product_tflops")
        rate = r["gb_s"] if r["phase"] == "decode" else r["tflop_s"]
        share = f"{100 * rate / peak:.0f}%" if peak else "-"
        lines.append(f"| {run['run']} | {run['model']['type']} | {r['test']} | {r['tok_s']:.1f} | {r['tflop_s']:.1f} "
                     f"| {r['gb_s']:.0f} | {share} |")
for r in (everything["transformers"] or {}).get("results", []):
    lines.append(f"| {r['model']} (transformers, {r['how']}) | BF16 | {r['test']} | {r['tok_s']:.1f} | - | - | - |")
if tried:
    lines += ["", "QUILL_GPU_TRY, in turns with the plain kernels:", "", "| what | plain tok/s | tried tok/s | gain |",
              "|---|---:|---:|---:|"]
for what, how in sorted((w, h) for w, h in tried.items() if len(h) == 2):
    plain, other = (statistics.median(how[k]) for k in ("plain", "tried"))
    lines.append(f"| {what} | {plain:.1f} | {other:.1f} | {100 * (other / plain - 1):+.1f}% |")
for name in sorted(glob.glob(out + "/ops-*.json")):
    lines += ["", f"Operations of a decoding step, {name.rsplit('/ops-', 1)[1][:-5]}:", "",
              "| behind | operation | us | us, begun early | MB | GB/s |", "|---:|---|---:|---:|---:|---:|"]
    for r in load(name) or []:
        lines += [f"| {r['depth']} | {o['op']} | {o['us']:.1f} | {o.get('early_us', 0):.1f} | {1e-6 * o['bytes']:.1f} | {o['gb_s']:.0f} |"
                  for o in r["operations"]]
lines += [""] + [f"- failed: {f}" for f in failed] + [f"- left out: {f}" for f in left_out]
open(to + "/gpu_check.md", "w").write("\n".join(lines) + "\n")
PYTHON
}
finish() {
  local code=$?
  set +e # a failing line here must not lose the results
  for pid in "${pids[@]}"; do pkill -P "$pid" 2>/dev/null; kill "$pid" 2>/dev/null; done
  [ -z "${making:-}" ] || pkill -P "$making" 2>/dev/null # an interrupted run: the models are no longer needed
  report
  (cd "$out" && find . -name '*.log' -o -name '*.json' -o -name '*.err' | tar -czf "$results_in/gpu_check.logs.tar.gz" -T -) ||
    say "the logs could not be kept"
  rm -rf "$models" "$out"
  cat "$results_in/gpu_check.md"
  say "$results_in/gpu_check.json, gpu_check.md, gpu_check.logs.tar.gz"
  [ ${#failures[@]} -eq 0 ] || echo "gpu_check: ${#failures[@]} checks failed, named above" >&2
  [ ${#failures[@]} -eq 0 ] && [ $code -eq 0 ] || exit 1
}
trap finish EXIT
trap 'exit 1' INT TERM

# ---- build ----
if [ -z "${QUILL:-}" ]; then
  if [ -z "$nvcc" ]; then skip "the build: no nvcc in CUDA_HOME, /usr/local/cuda or PATH"
  elif ! make -j"$(nproc)" CUDA_ARCH=native quill >"$out/build.log" 2>&1; then
    fail "it does not build: $(grep -m1 -i error "$out/build.log" || tail -1 "$out/build.log"); all of it is in build.log"
  elif ! make -j"$(nproc)" CUDA_ARCH=native gpu-tests >>"$out/build.log" 2>&1; then
    skip "the kernels' tests do not build: $(grep -m1 -i error "$out/build.log" || tail -1 "$out/build.log")"
  fi
fi
quill=${QUILL:-./quill}
[ -x "$quill" ] || die "no $quill to go on with"
quill=$(cd "$(dirname "$quill")" && pwd)/$(basename "$quill")
version=$("$quill" --version) || die "$quill does not run here"
say "${version//$'\n'/; }"
[[ $version =~ CUDA:\ [0-9] ]] || die "$quill: a build with CUDA expected, one without found"

# Finds cuBLAS where the loader does not search: beside nvcc, or in a Python package.
libraries=${LD_LIBRARY_PATH:-}
if ! ldconfig -p 2>/dev/null | grep 'libcublas\.so\.1[23]' >/dev/null; then # -q would end the pipe early
  for file in "${nvcc%/bin/nvcc}"/lib64/libcublas.so.1[23] /usr/local/cuda*/lib64/libcublas.so.1[23] \
    $(python3 -c 'import glob, site, sys
for d in sys.path + site.getsitepackages():
    print(*glob.glob(d + "/nvidia/*/lib/libcublas.so.1[23]"), sep="\n")' 2>/dev/null); do
    [ -f "$file" ] || continue
    say "cuBLAS: $file"
    libraries=$(dirname "$file")${libraries:+:$libraries}
    break
  done
fi
# ---- shared by the steps ----
run() { # run OPTIONS...: runs quill for up to $within seconds
  local code=0
  LD_LIBRARY_PATH=$libraries timeout -k 5 "${within:-60}" "$quill" "$@" || code=$?
  [ $code -ne 124 ] || echo "it took longer than ${within:-60} seconds" >&2
  return $code
}
into() { # into FILE COMMAND...: writes the output to FILE in $out, and messages to last.err, which `why` shows
  local file=$1
  shift
  "$@" >"$out/$file" 2>"$out/last.err"
}
why() { tail -1 "$out/last.err"; }
tiny=$out/tiny
mkdir -p "$tiny"

tokens=1,5,9,17,33,4,8,15,16,23,42,2,7,11,13,19,29,31,37,41
logits() { # logits MODEL FILE OPTIONS...: writes logits to FILE in $out
  local model=$1 file=$2
  shift 2
  into "$file" run logits -m "$model" --tokens "$tokens" "$@"
}
# compare NAME LIMIT WANT: compares WANT with b.f32. With by_row=COLUMNS it compares row by row: rounding may change which
# of two nearly equal experts a row is routed to, so a fifth of the rows may be beyond the limit.
compare() {
  python3 - "$1" "$2" "${by_row:-0}" "$3" "$out/b.f32" <<'PYTHON' || fail "$1"
import array, math, sys
name, limit, columns, *files = sys.argv[1:]
want, got = (array.array("f", open(f, "rb").read()) for f in files)
limit, columns = float(limit), int(columns) or len(want)
def distance(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / (sum(x * x for x in a) or math.nan))
rows = sorted(distance(want[i:i + columns], got[i:i + columns]) for i in range(0, len(want), columns))
d = rows[len(rows) // 2]
beyond = sum(not r <= limit for r in rows)
print(f"       {name:40} {d:.1e}" + (f", {beyond} of {len(rows)} rows beyond {limit:g}" if len(rows) > 1 else ""))
sys.exit(not (len(want) == len(got) and all(map(math.isfinite, got)) and d <= limit and 5 * beyond <= len(rows)))
PYTHON
}
near() { # near NAME LIMIT FILE [LAYERS]: compares the GPU's logits with those of the scalar CPU code
  if [ "$(left)" -lt 60 ]; then skip "no time for the logits of $1"
  elif logits "$3" a.f32 --device cpu --isa scalar -ctk f32 -ctv f32 && logits "$3" b.f32 --device cuda -ngl "${4:-all}" ${steps:+-ub "$steps"} ${kv:+-ctk "$kv" -ctv "$kv"}; then
    compare "$1" "$2" "$out/a.f32"
  else fail "$1: $(why)"; fi
}

# ---- tests on the GPU ----
check_kernels() { # runs tests/test_gpu_X.c, built as gpu_X
  local source name log code seconds
  for source in tests/test_gpu_*.c; do
    name=$(basename "$source" .c)
    name=${name#test_}
    log=$out/$name.log
    seconds=$(($(left) < 60 ? $(left) : 60)) code=0
    if [ "$seconds" -lt 5 ]; then skip "no time for the kernels' own tests, $name"
    elif [ ! -x "build/release/tests/$name" ]; then skip "the kernels' own tests: no build/release/tests/$name (make gpu-tests; cmocka is needed)"
    elif QUILL_TEST_TMP=$out LD_LIBRARY_PATH=build/release/tests${libraries:+:$libraries} timeout -k 5 $seconds "build/release/tests/$name" >"$log" 2>&1 || { code=$?; false; }; then
      say "the kernels' own tests, $name: all passed"
      ! grep -q '^skipped' "$log" || skip "$name: $(grep -m1 '^skipped' "$log" | cut -c10-)"
    else fail "the kernels' own tests: $(grep -m1 ERROR "$log" || tail -1 "$log"); $name.log"; fi
    report
    case $code in 124 | 137) skip "the kernels' other tests: $name hung, so the GPU may not be in order"; break ;; esac
  done
}
small() { # small TYPE [HEADS] [NAME]: makes a small random model
  within=60 run bench --shape dim=512,layers=3,heads="${2:-8}",kv_heads=2,ffn=1024,vocab=2048 --type "$1" --save "$tiny/${3:-$1}.gguf" -p 0 -n 0 -q 2>"$out/last.err"
}
check_types() { # check_types TYPE...: compares logits of small random models
  local type limit
  say "logits of small random models, GPU against scalar CPU: $*"
  for type; do
    [ -f "$tiny/$type.gguf" ] || small "$type" || { fail "$type: $(why)"; continue; }
    case $type in F32) limit=1e-4 ;; F16 | BF16) limit=2e-2 ;; *) limit=5e-2 ;; esac
    near "$type" $limit "$tiny/$type.gguf"
  done
  report
}
check_kv() { # every type of KV, with groups that are sealed during the run
  local types k v rotate steps tokens limit
  say "the same with every type of KV"
  tokens=$longer
  [ -f "$tiny/F32.gguf" ] || return 0
  for types in "f16 f16" "q8_0 q8_0" "kivi2 kivi2" "f16 f16 --kv-rotate" "fp8 fp8" "q4_0 q4_0 --kv-rotate" "q8_0 q4_0" "kivi2 f16"; do
    [ "$(left)" -ge 40 ] || { skip "no time for KV $types"; continue; }
    read -r k v rotate <<<"$types"
    # shellcheck disable=SC2086 # no word or one
    logits "$tiny/F32.gguf" a.f32 --device cpu --isa scalar -ctk "$k" -ctv "$v" $rotate || { fail "KV $types: $(why)"; continue; }
    for steps in 2048 40 7; do # in one step; in tiles that begin inside a group; with the fused kernels
      # shellcheck disable=SC2086
      if logits "$tiny/F32.gguf" b.f32 --device cuda -ctk "$k" -ctv "$v" $rotate -ub $steps; then
        case $types/$steps in */7) limit=1e-2 ;; *kivi2*) limit=6e-2 ;; *q4_0*) limit=2e-2 ;; *) limit=1e-2 ;; esac # tiles round K and V to f16
        compare "KV $types, -ub $steps" $limit "$out/a.f32"
      else fail "KV $types: $(why)"; fi
    done
  done
  report
}
check_experts() { # experts in tiles, by type; compressed KV in 16 bits
  local tokens=$longer name type limit shape by_row
  say "mixtures of experts, and compressed KV, GPU against scalar CPU"
  for name in experts-BF16 experts-Q4_K experts-Q8_0 experts-F16 latent-BF16; do
    type=${name#*-}
    shape=dim=512,layers=2,heads=8,ffn=256,vocab=2048,experts=8,used=2
    by_row=2048
    case $name in latent-*) shape=$shape,kv_rank=512,rot=64,v_dim=128,head_dim=192 ;; *) shape=$shape,kv_heads=2 ;; esac
    case $type in F16 | BF16) limit=2e-2 ;; *) limit=5e-2 ;; esac
    within=30 run bench --shape "$shape" --type "$type" --save "$tiny/$name.gguf" -p 0 -n 0 -q 2>"$out/last.err" || { fail "$name: $(why)"; continue; }
    near "$name" $limit "$tiny/$name.gguf"
  done
  report
}
check_small_batches() {
  local tokens=1,5,9,17,33,4,8,15,16,23,42,2 type limit steps
  for type in F16 BF16 Q8_0 Q4_0 Q4_K Q6_K; do
    case $type in F16 | BF16) limit=2e-2 ;; *) limit=5e-2 ;; esac
    [ -f "$tiny/$type.gguf" ] || small "$type" || { fail "$type: $(why)"; continue; }
    for steps in 12 5 3 2; do near "$type, $steps rows on the tensor cores" $limit "$tiny/$type.gguf"; done
  done
}
check_part() { # a model of which the CPU computes a layer
  [ ! -f "$tiny/Q8_0.gguf" ] || near "Q8_0, 2 of 3 layers on the GPU" 5e-2 "$tiny/Q8_0.gguf" 2
}
check_tries() { # kernels that QUILL_GPU_TRY turns on: single rows, and a prompt
  local tokens=1,5,9,17,33 type limit steps kv
  for type in F16 BF16 Q8_0 Q4_0 Q4_K Q5_K Q6_K IQ4_XS MXFP4; do
    case $type in F16 | BF16) limit=2e-2 ;; *) limit=5e-2 ;; esac
    [ -f "$tiny/$type.gguf" ] || small "$type" || { fail "$type: $(why)"; continue; }
    steps=1 QUILL_GPU_TRY=ring near "$type, ring" $limit "$tiny/$type.gguf"
    steps=1 QUILL_GPU_TRY=ring,early near "$type, ring, early" $limit "$tiny/$type.gguf"
  done
  tokens=$longer
  for kv in f16 bf16; do
    QUILL_GPU_TRY=wgmma near "heads of 64, KV in $kv, wgmma" 2e-2 "$tiny/BF16.gguf"
    [ -f "$tiny/heads128.gguf" ] || small BF16 4 heads128 || { fail "heads of 128: $(why)"; continue; }
    QUILL_GPU_TRY=wgmma near "heads of 128, KV in $kv, wgmma" 2e-2 "$tiny/heads128.gguf"
  done
  report
}
golden() { # golden LIMIT FILE WANT; false: no time is left
  [ "$(left)" -ge 40 ] || { skip "no time for golden logits from $(basename "$2") on"; return 1; }
  if logits "$2" b.f32 --device cuda ${steps:+-ub "$steps"}; then compare "golden $(basename "$2")${steps:+, -ub $steps}" "$1" "$3"
  else fail "$2: $(why)"; fi
}
check_golden() { # compares with logits of an outside float64 implementation
  local tokens file limit dir=${QUILL_TEST_DATA:-}/golden
  if [ -f "$dir/families/tokens.txt" ]; then
    tokens=$(cat "$dir/families/tokens.txt")
    for file in gptoss qwen3moe deepseek3 gemma4moe gemma2 mixtral qwen2moe gemma3 qwen3next deepseek2lite gemma4 lfm2 qwen35 qwen35moe phi3 granite smollm3 ministral3 olmo2 glm4; do
      golden 1e-3 "$dir/families/$file.gguf" "$dir/families/$file.logits.f32" || return 0
    done
    steps=24 golden 1e-3 "$dir/families/mixtral.gguf" "$dir/families/mixtral.logits.f32" || return 0 # few rows choose experts
    golden 8e-2 "$dir/families/gptoss_mxfp4.gguf" "$dir/families/gptoss_mxfp4.logits.f32" || return 0
  fi
  [ -f "$dir/tokens.txt" ] || return 0
  tokens=$(cat "$dir/tokens.txt")
  for file in "$dir"/arch/*.gguf "$dir"/quants/*.gguf; do
    case $file in */arch/* | */F32.gguf) limit=1e-4 ;; */F16.gguf | */BF16.gguf) limit=2e-2 ;; *) limit=5e-2 ;; esac
    golden $limit "$file" "${file%.gguf}.f32" || return 0
  done
  report
}

check_outside() { # families without golden files: the small models that tests/test_outside.c writes
  local tokens=$longer file steps
  for file in "${QUILL_TEST_DATA:-}"/outside/*.gguf; do
    [ -f "$file" ] || return 0
    steps='' near "$(basename "$file" .gguf)" 1e-3 "$file"
    for steps in 3 12 24; do near "$(basename "$file" .gguf), -ub $steps" 1e-3 "$file"; done
  done
  report
}

text() { into "$1" run --seed "$2" --raw -n 200 --json "${@:3}" "Once upon a time" </dev/null; } # text FILE SEED OPTIONS...
part() { # part WANT GOT: greedy texts may differ only where the reference's two best tokens are closer than int8 rounding
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
same() { # same A B: compares the texts of two answers in JSON
  python3 -c 'import json, sys; a, b = (json.load(open(f))["text"] for f in sys.argv[1:]); sys.exit(a != b)' "$@"
}
check_text() { # check_text OPTIONS...: checks a greedy text
  if [ "$(left)" -lt 40 ]; then skip "no time for the greedy text $*"
  elif text cpu.json 1 --device cpu --isa scalar --greedy --logprobs 2 "$@" &&
    text gpu.json 1 --device cuda --greedy --logprobs 2 "$@"; then
    say "the greedy text $*"
    part "$out/cpu.json" "$out/gpu.json" || fail "the greedy text $*"
  else fail "the greedy text $*: $(why)"; fi
}
check_seed() { # check_seed N: checks a sampled text
  if [ "$(left)" -lt 40 ]; then skip "no time for seed $1"
  elif text gpu.json "$1" --device cuda && text again.json "$1" --device cuda &&
    text host.json "$1" --device cuda --logprobs 0 && QUILL_GPU_TRY=ring,early text early.json "$1" --device cuda; then
    same "$out/gpu.json" "$out/again.json" || fail "seed $1: the same run gave another text"
    same "$out/gpu.json" "$out/host.json" || fail "seed $1: drawn on the GPU and drawn by the host differ"
    same "$out/gpu.json" "$out/early.json" || fail "seed $1: the ring, with kernels begun early, gave another text"
    say "seed $1: the same again, and with the host's draws"
  else fail "seed $1: $(why)"; fi
}
check_texts() {
  check_text -ctk q8_0 -ctv q8_0
  check_text -ctk kivi2 -ctv q4_0 --kv-rotate
  check_text -c 128 --evict sinks,window=96
  check_text -c 128 --evict h2o,heavy=64,recent=48
  for seed in 1 2 3; do check_seed $seed; done
  report
}
check_memory() { # runs compute-sanitizer; it is slow, so it comes last
  local tool how model states="${QUILL_TEST_DATA:-}/outside/nemotron_h_moe.gguf" # Mamba-2, experts without a gate
  command -v compute-sanitizer >/dev/null || { skip "compute-sanitizer is not installed"; return 0; }
  for tool in memcheck racecheck; do
    for how in "--tokens 1,2,3,4,5,6,7" "--tokens $longer -ub 40 -ctk kivi2 -ctv q8_0 --kv-rotate" states; do
      model=$tiny/Q4_K.gguf
      if [ "$how" = states ]; then
        [ -f "$states" ] || continue
        model=$states how="--tokens 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20 -ub 14"
      fi
      [ "$(left)" -ge 45 ] || { skip "no time for compute-sanitizer $tool $how"; continue; }
      # shellcheck disable=SC2086 # words
      if LD_LIBRARY_PATH=$libraries timeout -k 5 40 compute-sanitizer --tool $tool --error-exitcode 9 --log-file "$out/$tool.log" \
        "$quill" logits -m "$model" $how --device cuda >/dev/null 2>"$out/last.err"; then
        say "compute-sanitizer $tool: clean"
      elif [ $? -eq 9 ]; then fail "compute-sanitizer $tool: $tool.log"
      else skip "compute-sanitizer $tool does not run here, or is slow ($(why))"; fi
    done
  done
}

# together CHECK...: runs checks side by side, since each leaves the GPU idle most of the time. Each has its own files.
together() {
  local check n=0 side
  for check; do
    side=$out/side.$((n += 1))
    mkdir -p "$side"
    (
      trap - EXIT
      out=$side failures=() left_out=()
      report() { :; }
      # shellcheck disable=SC2086 # words
      $check
      [ ${#failures[@]} -eq 0 ] || printf '%s\n' "${failures[@]}" >"$side/failed"
      [ ${#left_out[@]} -eq 0 ] || printf '%s\n' "${left_out[@]}" >"$side/left"
    ) >"$side/said" 2>&1 &
    pids[n]=$!
  done
  n=0
  for check; do
    side=$out/side.$((n += 1))
    wait "${pids[n]}" || failures+=("$check ended early: $(tail -n 1 "$side/said")")
    cat "$side/said"
    [ ! -f "$side/failed" ] || mapfile -t -O ${#failures[@]} failures <"$side/failed"
    [ ! -f "$side/left" ] || mapfile -t -O ${#left_out[@]} left_out <"$side/left"
    rm -f "$side/failed" "$side/left"
  done
  report
}

# ---- benchmarks ----
ceilings() {
  say "ceilings"
  [ "$(left)" -gt 40 ] || { skip "no time for ceilings"; return 0; }
  within=40 into roofline.json run bench --roofline -p 0 -n 0 --device cuda -o json || fail "bench --roofline: $(why)"
  report
}

model() { # model SHAPE TYPE: prints the options that name the model; it is written once if there is room
  local file=$models/$1-$2.gguf
  [ -f "$file" ] || within=100 run bench --shape "$1" --type "$2" --save "$file" -p 0 -n 0 -q 2>/dev/null || rm -f "$file"
  if [ -f "$file" ]; then echo "-m $file"; else echo "--shape $1 --type $2"; fi
}
bench() { # bench NAME SECONDS SHAPE TYPE OPTIONS...: skipped if fewer than SECONDS, its longest time, are left
  local name=$1 seconds=$2 shape=$3 type=$4
  shift 4
  if [ "$(left)" -lt "$seconds" ]; then
    skip "no time for $name"
    return 0
  fi
  # shellcheck disable=SC2046 # words
  if within=$seconds into "$name.json" run bench --device cuda -q -o json $(model "$shape" "$type") "$@"; then
    results+=("$out/$name.json")
    say "$name"
    report
  else fail "$name: $(why)"; fi
}
ops() { # ops SHAPE TYPE: times each operation of a decoding step separately
  # shellcheck disable=SC2046 # words
  if [ "$(left)" -lt 30 ]; then skip "no time for the operations of $1 in $2"
  elif within=30 into "ops-$1-$2.json" run bench --ops --device cuda -q -o json $(model "$1" "$2") -d 64,4096; then
    say "the operations of $1 in $2"
    report
  else fail "the operations of $1 in $2: $(why)"; fi
}
# try WHAT NAME SECONDS SHAPE TYPE OPTIONS...: alternates default kernels and kernels that no GPU has timed yet
try() {
  local what=$1 name=$2
  shift 2
  for turn in 1 2; do
    bench "try-$what-$name.plain.$turn" "$@"
    QUILL_GPU_TRY=$what bench "try-$what-$name.tried.$turn" "$@"
  done
}

# ---- the steps in order: basic tests, the main figures, the other tests, the other figures ----
longer=$(seq -s, 3 102) texts=
# The CPU writes the large models while the GPU is tested.
(for shape in "8b Q4_K" "8b BF16" "1b BF16" "1b Q4_K"; do model "${shape% *}" "${shape#* }" >/dev/null; done) &
making=$! # finish() ends it
check_types F32 BF16 Q4_K Q8_0
if [[ $version =~ model:\ none ]]; then skip "texts: no model is built in"
else texts="check_text check_texts"; fi
# shellcheck disable=SC2086 # words
together check_kernels check_tries check_experts check_kv check_small_batches $texts check_golden check_outside \
  "check_types F16 Q4_0 Q6_K Q5_0 Q4_1 Q5_1" "check_types Q2_K Q3_K Q5_K IQ4_NL IQ4_XS MXFP4" \
  "check_types IQ1_S IQ2_XXS IQ3_S TQ1_0 TQ2_0" check_part
say "waits for the models"
while kill -0 "$making" 2>/dev/null && [ "$(left)" -gt 120 ]; do sleep 1; done
ceilings
for type in BF16 Q4_K; do bench "8b-$type" 60 8b $type -p 512 -n 64 -r 3; done
for type in BF16 Q4_K; do bench "1b-$type" 30 1b $type -p 512 -n 64 -r 3; done
for type in BF16 Q4_K; do ops 8b $type; done
bench moe-Q4_K 60 moe-7b-a1b Q4_K -p 512 -n 64 -r 3
for type in BF16 Q4_K; do
  for what in ring ring,early; do try $what "8b-$type" 30 8b $type -p 0 -n 64 -r 3; done
done
try wgmma 8b-BF16 30 8b BF16 -p 512,4096 -n 0 -r 3
try wgmma 8b-Q4_K 60 8b Q4_K -p 16384 -n 0 -r 2
for type in BF16 Q4_K; do
  bench "8b-$type-pp4096" 30 8b $type -p 4096 -n 0 -r 3
  bench "8b-$type-x32" 40 8b $type -p 0 -n 32 -r 2 --sequences 32 -d 1024
  bench "8b-$type-d4096" 40 8b $type -p 0 -n 32 -r 2 -d 4096
  for n in 2 4 8; do bench "8b-$type-x$n" 30 8b $type -p 0 -n 32 -r 2 --sequences $n -d 64; done
done
ops moe-7b-a1b Q4_K
bench moe-Q8_0 60 moe-7b-a1b Q8_0 -p 512 -n 64 -r 3
bench moe-Q4_K-x8 40 moe-7b-a1b Q4_K -p 0 -n 32 -r 2 --sequences 8 -d 64
bench moe-Q4_K-cpu 60 moe-7b-a1b Q4_K -p 512 -n 16 -r 2 --cpu-moe
rm -f "$models"/moe-*
for type in BF16 Q4_K; do
  bench "8b-$type-d32768" 40 8b $type -p 0 -n 32 -r 2 -d 32768
  for kv in q8_0 kivi2; do bench "8b-$type-d32768-$kv" 40 8b $type -p 0 -n 32 -r 2 -d 32768 -ctk $kv -ctv $kv; done
  bench "8b-$type-x16" 30 8b $type -p 0 -n 32 -r 2 --sequences 16 -d 64
done
rm -f "$models"/*-BF16.gguf
for type in Q8_0 Q4_0; do
  bench "8b-$type" 60 8b $type -p 512 -n 64 -r 3
  bench "1b-$type" 30 1b $type -p 512 -n 64 -r 3
  for n in 2 4 8; do bench "8b-$type-x$n" 30 8b $type -p 0 -n 32 -r 2 --sequences $n -d 64; done
done
for what in ring ring,early; do try $what 1b-BF16 30 1b BF16 -p 0 -n 64 -r 3; done
check_memory
if [ "$(left)" -lt 40 ]; then skip "transformers: no time"
elif ! timeout 60 python3 -c 'import torch, transformers' 2>/dev/null; then skip "transformers: not installed"
else
  into transformers.json timeout -k 10 "$(left)" python3 scripts/bench_transformers.py || fail "transformers: $(why)"
fi
ended=complete
