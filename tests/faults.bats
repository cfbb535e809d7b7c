#!/usr/bin/env bats
# faults.bats: what the system can do to a run: kill it, limit its files, hand it streams that do not block, take memory
# or a file away. tests/rig/faults.py makes single calls fail.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/base.gguf" seed=1 ctx=2048
    "$MAKE_TINY" "$TINY/chat.gguf" arch=qwen2 template=chatml ctx=2048
    export QUILL_MODEL="$TINY/base.gguf"
    for i in $(seq 60); do printf 'word %d. ' "$i"; done >"$TINY/long.txt"
}

# One line on stderr (the file `errors`), beginning with quill: and with the text $1 in it.
one_line() {
    [ "$(wc -l <errors)" -eq 1 ] || { cat errors; return 1; }
    grep -q "^quill: .*$1" errors || { cat errors; return 1; }
}

@test "files that killed writers left are removed by the next good run" {
    for i in 1 2 3 4 5 6; do
        "$QUILL" prefill --kv-out o.kv -c 2048 --raw -ub 8 -f "$TINY/long.txt" 2>/dev/null &
        while ! ls | grep -q quill-; do kill -0 $! || break; sleep 0.002; done
        kill -KILL $! 2>/dev/null || true
        wait $! || true
    done
    echo theirs >o.kv.tmp
    for i in $(seq 1000); do : >"o.kv.quill-tmp-a$(printf %05d "$i")"; done
    "$QUILL" prefill --kv-out o.kv --raw -f "$TINY/long.txt"
    [ "$(ls | tr '\n' ' ')" = "o.kv o.kv.tmp " ]
    "$QUILL" kv check o.kv
}

@test "a file that reaches ulimit -f is exit 6 and one line, also in the middle of an answer" {
    rc=0
    (ulimit -f 4; exec "$QUILL" prefill --kv-out o.kv --raw -f "$TINY/long.txt") 2>errors || rc=$?
    [ "$rc" -eq 6 ]
    one_line "o.kv: cannot write .*: File too large"
    [ ! -e o.kv ]
    rc=0
    (ulimit -f 1; exec "$QUILL" --raw --greedy --ignore-eos --special -n 1500 abc >answer) 2>errors || rc=$?
    [ "$rc" -eq 6 ]
    one_line "stdout: cannot write .*: File too large"
    [ "$(stat -c %s answer)" -eq 1024 ]
}

@test "non-blocking streams are waited for" {
    python3 - "$QUILL" "$TINY/chat.gguf" <<'PYTHON'
import os, signal, subprocess, sys, threading, time
signal.alarm(120)
quill, model = sys.argv[1:]

def run(args, given, both=False):
    """With an stdin and an stdout (both: and an stderr) that do not block, a late writer and a late reader."""
    in_r, in_w = os.pipe()
    out_r, out_w = os.pipe()
    for fd in (in_r, out_w): os.set_blocking(fd, False)
    p = subprocess.Popen([quill, *args], stdin=in_r, stdout=out_w, stderr=out_w if both else subprocess.PIPE)
    os.close(in_r), os.close(out_w)
    def feed():
        for part in given:
            time.sleep(0.1)
            os.write(in_w, part)
        os.close(in_w)
    t = threading.Thread(target=feed)
    t.start()
    time.sleep(0.5)
    out = b""
    while True:
        part = os.read(out_r, 4096)
        if not part: break
        out += part
        time.sleep(0.0005)
    t.join()
    errors = b"" if both else p.stderr.read()
    return p.wait(), out, errors

def want(args, given):
    p = subprocess.run([quill, *args], input=b"".join(given), capture_output=True)
    assert p.returncode == 0, p
    return p.stdout

text = [b"word and word. " * 1500] * 2
for args, given in [
    (["tokenize", "-m", model, "-f", "-"], text),                    # more than a pipe holds
    (["tokenize", "-m", model, "-p", "x" * 60000], [b""]),
    (["--help"], [b""]), (["--man"], [b""]),
    (["-m", model, "--greedy", "-n", "5"], [b"one", b" two"]),
    (["-i", "-m", model, "--greedy", "-n", "5"], [b"one\n", b"tw", b"o\nthree"]),
    (["inspect", "-m", model], [b""]),
]:
    code, out, errors = run(args, given)
    assert code == 0 and not errors, (args[:3], code, errors)
    assert out == want(args, given), args[:3]
code, out, errors = run(["-m", model, "-c", "2048", "-n", "1", "--dump-tokens", "-p", "x y " * 400], [b""], True)
assert code == 0 and out.count(b"\n") > 800, (code, out[-300:])
code, out, errors = run(["batch", "-m", model, "--greedy", "-n", "5"], [b'{"prompt":"a"}\n', b'{"prompt":"b"}\n'])
assert code == 0 and not errors and out.count(b"\n") == 2, (code, out, errors)
os.environ["HOME"] = os.getcwd()
subprocess.run([quill, "prefill", "-m", model, "-p", "abc", "--kv-out", "a.kv"], check=True)
kv = open("a.kv", "rb").read()
code, out, errors = run(["decode", "-m", model, "--greedy", "-n", "5", "--kv-in", "-"], [kv[:100], kv[100:]])
assert code == 0 and not errors, (code, errors)
PYTHON
}

@test "a command of a piped chat that cannot write its file makes the exit code 6" {
    rc=0
    printf 'hello\n/save /nowhere/talk.json\nand now\n' | "$QUILL" -i -m "$TINY/chat.gguf" --greedy -n 4 >answer 2>errors || rc=$?
    [ "$rc" -eq 6 ]
    one_line "/nowhere/talk.json.*cannot create"
    [ "$(grep -c . answer)" -ge 1 ]
}

@test "a saved conversation keeps its mode" {
    printf 'hello\n/save talk.json\n' | "$QUILL" -i -q -m "$TINY/chat.gguf" --greedy -n 4 >answer 2>errors
    chmod 600 talk.json
    printf '/load talk.json\nand now\n/save\n' | "$QUILL" -i -q -m "$TINY/chat.gguf" --greedy -n 4 >answer 2>errors
    [ "$(stat -c %a talk.json)" = 600 ]
    [ "$(grep -c '"role"' talk.json)" -eq 4 ]
}

# hostile FILE TOKENS MERGES: a GGUF of a gigabyte or more, nearly all holes, with so many empty strings as tokens and as merges.
hostile() {
    python3 - "$1" "$2" "$3" <<'PYTHON'
import struct, sys
path, n_tokens, n_merges = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def text(s): return struct.pack("<Q", len(s)) + s.encode()
def key(name, value): return text(name) + struct.pack("<I", 8) + text(value)
with open(path, "wb") as f:
    f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 5) + key("general.architecture", "llama"))
    f.write(key("tokenizer.ggml.model", "gpt2") + key("tokenizer.ggml.pre", "gpt-2"))
    for name, n in (("tokens", n_tokens), ("merges", n_merges)):
        f.write(text("tokenizer.ggml." + name) + struct.pack("<IIQ", 9, 8, n))
        f.seek(8 * n, 1) # empty strings
    f.truncate(max(1 << 30, f.tell()))
PYTHON
}

@test "vocabularies of many empty strings are refused within 64 MiB" {
    limit=65536 wide=262144
    [ -n "$QUILL_FAULTS" ] || limit=unlimited wide=unlimited # a sanitizer reserves terabytes
    for shape in "67108864 1" "4 67108864" "1048577 1"; do
        hostile big.gguf $shape
        rc=0
        (ulimit -d $limit; exec "$QUILL" tokenize -m big.gguf abc) >out 2>errors || rc=$?
        [ "$rc" -eq 3 ] || { cat errors; return 1; }
        one_line "strings expected"
        [ ! -s out ]
    done
    hostile big.gguf 1048576 4194304 # what is taken; its table of merges stays empty
    (ulimit -d $wide; exec "$QUILL" tokenize -m big.gguf abc)
}

@test "a byte order mark in front of JSON is ignored" {
    printf '\357\273\277{"prompt":"a","id":1}\n{"prompt":"b","id":2}\n' >jobs
    [ "$("$QUILL" batch -m "$TINY/chat.gguf" --greedy -n 2 jobs | wc -l)" -eq 2 ]
    printf '\357\273\277{"messages":[{"role":"user","content":"hi"}]}' >talk.json
    "$QUILL" template --chat-template chatml -f talk.json | grep -q hi
    printf '/load talk.json\n/save again.json\n' | "$QUILL" -i -m "$TINY/chat.gguf" --greedy -n 2
    grep -q '"hi"' again.json
}

@test "a model file truncated during a run ends the run in one line and keeps finished answers" {
    needs_terminal
    python3 "$BATS_TEST_DIRNAME/rig/cut.py" "$QUILL" "$TINY/base.gguf" "$TINY/chat.gguf"
}

@test "--no-mmap and --mlock check the available memory first" {
    cp "$TINY/base.gguf" m.gguf
    truncate -s 1T m.gguf || skip "no files of 1 TB here"
    rc=0
    "$QUILL" -m m.gguf --no-mmap --raw -n 2 abc >out 2>errors || rc=$?
    [ "$rc" -eq 4 ]
    [ ! -s out ]
    grep -q '^quill: m.gguf: --no-mmap: the file needs 1100 GB of memory, ' errors
    grep -q '^  available ' errors
    rc=0
    "$QUILL" -m m.gguf --mlock --raw -n 2 abc >out 2>errors || rc=$?
    [ "$rc" -eq 4 ]
    [ ! -s out ]
    grep -q '^quill: --mlock: the file, the KV cache and scratch need 1100 GB of memory' errors
    grep -q '^  available ' errors
    # Mapped, the tail costs nothing, also where a file would be moved into huge pages.
    timeout 20 "$QUILL" -m m.gguf --raw --greedy --ignore-eos -n 40 abc >out
    "$QUILL" -m "$TINY/base.gguf" --raw --greedy --ignore-eos -n 40 abc | cmp - out
}

@test "after a failing system call quill ends cleanly, with no partial answers and no files left (a sample)" {
    [ -n "$QUILL_FAULTS" ] || skip "a sanitizer's runtime does not run beside the library that fails calls"
    python3 "$BATS_TEST_DIRNAME/rig/faults.py" --quill "$QUILL" --make-tiny "$MAKE_TINY" --preload "$QUILL_FAULTS" --sample 8
}

@test "memory stays flat over many random jobs (a sample)" {
    growth=2
    [ -n "$QUILL_FAULTS" ] || growth=64 # a sanitizer keeps what is freed for a while
    python3 "$BATS_TEST_DIRNAME/rig/soak.py" --quill "$QUILL" --make-tiny "$MAKE_TINY" --jobs 200 --turns 100 --growth "$growth"
}
