#!/usr/bin/env bats
# hub.bats: models by their names, from a Hub on this machine (tests/rig/hub_server.py) with every fault that a network
# has; the cache shared with the huggingface_hub package.

load rig/helpers

# me/tiny: GGUF in three types, a projector, an importance matrix, split files; me/dir: a Hugging Face directory of three
# shards; me/odd: one type that nobody would choose; me/two: two models of one type.
models() {
    command -v python3 >/dev/null || return 0
    export HUB="$TINY/hub"
    mkdir -p "$HUB/me/tiny/big" "$HUB/me/odd" "$HUB/me/two" "$HUB/me/none"
    "$MAKE_TINY" "$TINY/a.gguf" seed=1 ctx=64 type=Q8_0
    "$MAKE_TINY" "$TINY/b.gguf" seed=2 ctx=64 type=F16
    cp "$TINY/a.gguf" "$HUB/me/tiny/tiny-Q4_K_M.gguf"
    cp "$TINY/b.gguf" "$HUB/me/tiny/tiny-q8_0.gguf"
    cp "$TINY/b.gguf" "$HUB/me/tiny/mmproj-tiny-F16.gguf"
    cp "$TINY/b.gguf" "$HUB/me/tiny/tiny.imatrix.gguf"
    for i in 1 2 3; do head -c 3000 /dev/urandom >"$HUB/me/tiny/big/tiny-BF16-0000$i-of-00003.gguf"; done
    echo "a readme" >"$HUB/me/tiny/README.md"
    cp "$TINY/b.gguf" "$HUB/me/odd/odd-Q3_K_S.gguf"
    cp "$TINY/b.gguf" "$HUB/me/odd/odd-Q5_0.gguf"
    cp "$TINY/a.gguf" "$HUB/me/two/one-Q4_K_M.gguf"
    cp "$TINY/b.gguf" "$HUB/me/two/two-Q4_K_M.gguf"
    echo nothing >"$HUB/me/none/README.md"
    "$MAKE_TINY" "$HUB/me/dir/" arch=qwen3 template=chatml ctx=64 shards=3
    echo "not for a model" >"$HUB/me/dir/pytorch_model.bin"
    python3 "$BATS_TEST_DIRNAME/rig/hub_server.py" "$HUB" >"$TINY/server" 2>&1 3>&- &
    echo $! >"$TINY/pid"
    within 20 test -e "$HUB/port"
}

teardown_file() {
    [ ! -e "$TINY/pid" ] || kill "$(cat "$TINY/pid")" 2>/dev/null || true
}

setup() {
    enter
    needs python3
    local hub other
    read -r hub other <"$HUB/port"
    export HF_ENDPOINT="http://127.0.0.1:$hub" HF_HOME="$PWD/hf" HF_HUB_DOWNLOAD_TIMEOUT=2 no_proxy='*' NO_PROXY='*'
    unset HF_TOKEN HF_HUB_CACHE HUGGINGFACE_HUB_CACHE HF_TOKEN_PATH HF_HUB_OFFLINE TRANSFORMERS_OFFLINE HF_HUB_ETAG_TIMEOUT
    export COMMIT=c0ffee0000000000000000000000000000000000
    folder="$HF_HOME/hub/models--me--tiny"
    snapshot="$folder/snapshots/$COMMIT"
    fault
    : >"$HUB/log"
    "$QUILL" pull me/tiny >out 2>errors || ! grep -q 'libcurl.so.4 expected' errors || skip "libcurl.so.4 is not installed"
    rm -rf "$HF_HOME"
    : >"$HUB/log"
}

# fault WORD...: what the Hub does wrong from now on; nothing: it behaves.
fault() { echo "$*" >"$HUB/fault.new" && mv "$HUB/fault.new" "$HUB/fault"; }
# requests PATTERN: how many lines of the log have it
requests() { grep -c -- "$1" "$HUB/log" || true; }
# said TEXT: stderr has it
said() { grep -q -- "$1" errors || { cat errors; return 1; }; }
pull() { "$QUILL" pull "$@" 2>errors; }
# begun REPO: a part of a file has come
begun() { [ -n "$(find "$HF_HOME/hub/models--me--$1/blobs" -name '*.incomplete' -size +0 2>/dev/null)" ]; }
# the whole model is in the cache
whole() { cmp "$snapshot/tiny-Q4_K_M.gguf" "$TINY/a.gguf" && [ -z "$(find "$HF_HOME" -name '*.incomplete')" ]; }

@test "a model is fetched by its name, once, into the cache's layout" {
    [ "$(pull me/tiny)" = "$snapshot/tiny-Q4_K_M.gguf" ]
    said 'me/tiny: fetching Q4_K_M .*; it also has BF16, Q8_0$'
    whole
    sum="$(sha256sum <"$TINY/a.gguf" | cut -d ' ' -f 1)"
    [ "$(readlink "$snapshot/tiny-Q4_K_M.gguf")" = "../../blobs/$sum" ]
    cmp "$folder/blobs/$sum" "$TINY/a.gguf"
    [ "$(cat "$folder/refs/main")" = $COMMIT ]
    [ -e "$HF_HOME/hub/.locks/models--me--tiny/$sum.lock" ]
    # nothing but what the model needs
    [ "$(find "$folder/blobs" -type f | wc -l)" -eq 1 ]
    : >"$HUB/log"
    pull me/tiny >path
    said 'using Q4_K_M'
    [ "$(wc -l <"$HUB/log")" -eq 1 ] # the list of files alone
    [ "$(pull -q me/tiny:q8_0)" = "$snapshot/tiny-q8_0.gguf" ]
    [ ! -s errors ]
    # a part in a folder brings the others
    pull me/tiny:BF16 >path
    for i in 1 2 3; do cmp "$snapshot/big/tiny-BF16-0000$i-of-00003.gguf" "$HUB/me/tiny/big/tiny-BF16-0000$i-of-00003.gguf"; done
    [[ "$(readlink "$snapshot/big/tiny-BF16-00001-of-00003.gguf")" == ../../../blobs/* ]]
    [ "$(pull "$HF_ENDPOINT")" = "" ]
    # addresses as a browser shows them
    [ "$(pull https://huggingface.co/me/tiny/blob/main/tiny-q8_0.gguf)" = "$snapshot/tiny-q8_0.gguf" ]
    [ "$(pull hf.co/me/tiny:tiny-q8_0)" = "$snapshot/tiny-q8_0.gguf" ]
}

@test "-hf fetches a model and runs it, and -m runs a cached model without a request" {
    export QUILL_MODEL=/nowhere # -hf goes over it
    "$QUILL" -hf me/tiny -q --greedy -n 5 --raw hello </dev/null >one
    unset QUILL_MODEL
    "$QUILL" -m "$TINY/a.gguf" --greedy -n 5 --raw hello </dev/null | cmp - one
    "$QUILL" --hf-repo=me/tiny:Q8_0 -q --greedy -n 5 --raw hello </dev/null >two
    "$QUILL" -hf me/dir -q --greedy -n 5 --raw hello </dev/null >three
    "$QUILL" -m "$HUB/me/dir" --greedy -n 5 --raw hello </dev/null | cmp - three
    : >"$HUB/log"
    for name in me/tiny tiny TINY tiny:Q4_K_M me/tiny:tiny-Q4_K_M.gguf; do
        "$QUILL" -m "$name" --greedy -n 5 --raw hello </dev/null | cmp - one
    done
    QUILL_MODEL=me/tiny:Q8_0 "$QUILL" --greedy -n 5 --raw hello </dev/null | cmp - two
    "$QUILL" -m me/tiny:Q8_0 --speculate ngram,tiny:Q8_0 --greedy -n 5 --raw hello </dev/null | cmp - two
    [ "$(code "$QUILL" -m me/tiny:Q8_0 --speculate me/tiny:Q5_K_M --raw hi)" -eq 3 ]
    said 'Q5_K_M'
    "$QUILL" -m dir --greedy -n 5 --raw hello </dev/null | cmp - three
    "$QUILL" inspect dir | grep -q 'qwen3'
    "$QUILL" inspect --json me/dir | grep -q '"general.name":"dir"'
    "$QUILL" quantize -q tiny:Q8_0 o.gguf Q8_0
    [ "$(code "$QUILL" -m me/other --raw hi)" -eq 3 ]
    said 'me/other: a file, a directory or a model in the cache expected, none found; quill pull me/other fetches it'
    [ "$(code "$QUILL" -m other --raw hi)" -eq 3 ]
    said 'other: a file, a directory or a model in the cache expected, none found; .* quill pull USER/other fetches one'
    [ "$(code "$QUILL" -m tiny:Q5_K_M --raw hi)" -eq 3 ]
    said 'it has Q4_K_M, Q8_0'
    [ "$(code "$QUILL" -m none.gguf --raw hi)" -eq 3 ]
    said 'none.gguf: cannot open: No such file'
    [ ! -s "$HUB/log" ]
    # a file of that name comes first
    mkdir me && cp "$TINY/b.gguf" me/tiny
    "$QUILL" -m me/tiny --greedy -n 5 --raw hello </dev/null | cmp - two
    [ "$(code "$QUILL" -m me/tiny -hf me/tiny hi)" -eq 2 ]
    said '^quill: -m and -hf: one of them expected, found both$'
}

@test "without a type Q4_K_M, Q8_0, safetensors or the only model is chosen; otherwise an error lists them" {
    pull me/dir >path
    [ "$(cat path)" = "$HF_HOME/hub/models--me--dir/snapshots/$COMMIT" ]
    said 'fetching safetensors'
    [ "$(ls "$(cat path)" | grep -c '^model-0000.-of-00003.safetensors$')" -eq 3 ]
    [ ! -e "$(cat path)/pytorch_model.bin" ]
    [ "$(code "$QUILL" pull me/odd)" -eq 3 ]
    said 'me/odd: Q4_K_M, Q8_0 or safetensors expected; it has Q3_K_S, Q5_0: name one, as me/odd:Q3_K_S$'
    rm "$HUB/me/odd/odd-Q5_0.gguf"
    pull me/odd | grep -q 'odd-Q3_K_S.gguf'
    cp "$TINY/b.gguf" "$HUB/me/odd/odd-Q5_0.gguf"
    [ "$(code "$QUILL" pull me/tiny:Q4_K_S)" -eq 3 ]
    said 'me/tiny:Q4_K_S: a type or a file of the repository expected; did you mean Q4_K_M?; it has BF16, Q4_K_M, Q8_0$'
    [ "$(code "$QUILL" pull me/tiny:tiny-Q8_O.gguf)" -eq 3 ]
    said 'me/tiny:tiny-Q8_O.gguf: a type or a file of the repository expected; did you mean tiny-q8_0.gguf?; it has'
    [ "$(code "$QUILL" pull me/two)" -eq 3 ]
    said 'one model expected, several found; name a file, as me/two:FILE: one-Q4_K_M.gguf, two-Q4_K_M.gguf'
    [[ "$(pull me/two:two-Q4_K_M.gguf)" == */two-Q4_K_M.gguf ]]
    [ "$(code "$QUILL" pull me/none)" -eq 3 ]
    said 'the repository has neither'
    for name in me a/b/c me/.. ../me me/a--b 'me/a b' me/tiny: -- ''; do [ "$(code "$QUILL" pull "$name")" -eq 2 ]; done
    [ "$(code "$QUILL" pull me/nothing)" -eq 3 ]
    said '^quill: me/nothing: 404: a repository expected'
    [ "$(code "$QUILL" pull me/tiny me/odd)" -eq 2 ]
    fault escape # paths that lead out of the snapshot are no files
    pull me/tiny:Q4_K_M >path
    [ -z "$(find / -maxdepth 2 -name 'x-Q4_K_M.gguf' 2>/dev/null)" ]
    fault many 2100000 # four bytes each
    [ "$(code "$QUILL" pull me/tiny:Q8_0)" -eq 6 ]
    said 'me/tiny: an answer of at most 8388608 bytes expected, found more'
}

@test "an interrupted transfer continues where it stopped" {
    fault cut 50000
    pull me/tiny >path
    whole
    [ "$(requests 'other .*range=bytes=50000-')" -eq 1 ]
    [ "$(requests 'other .*range=bytes=100000-')" -eq 1 ]
    # over processes, after a kill too
    rm -rf "$HF_HOME"
    fault stall 4000
    "$QUILL" pull -q me/tiny >path 2>errors &
    within 20 begun tiny
    kill -KILL $!
    wait $! || true
    [ "$(stat -c %s "$folder"/blobs/*.incomplete)" -eq 4000 ]
    [ "$(code "$QUILL" -m me/tiny --raw hi)" -eq 3 ]
    said 'a whole model in the cache expected, none found; quill pull me/tiny fetches it'
    : >"$HUB/log"
    fault
    pull me/tiny >path
    whole
    [ "$(requests 'other .*range=bytes=4000-')" -eq 1 ]
    # a server without ranges, and one that says no length: from the beginning, and whole
    for how in norange chunked; do
        rm -rf "$HF_HOME"
        mkdir -p "$folder/blobs"
        head -c 4000 "$TINY/a.gguf" >"$folder/blobs/$(sha256sum <"$TINY/a.gguf" | cut -d ' ' -f 1).incomplete"
        fault $how
        pull me/tiny >path
        whole
    done
    # one that gives nothing at all is given up
    rm -rf "$HF_HOME"
    fault cut 0
    [ "$(code "$QUILL" pull me/tiny)" -eq 6 ]
    [ "$(requests 'other GET')" -ge 5 ]
}

@test "Ctrl-C keeps the received part, and the next run continues it" {
    fault stall 5000
    hears_signals "$QUILL" pull me/tiny >path 2>errors &
    pid=$!
    within 20 begun tiny
    kill -INT $pid
    ended $pid
    [ "$status" -eq 130 ]
    said 'the fetched part is kept; the same command continues the transfer'
    [ "$(stat -c %s "$folder"/blobs/*.incomplete)" -eq 5000 ]
    [ ! -e "$folder/refs/main" ]
    : >"$HUB/log"
    fault
    pull me/tiny >path
    whole
    [ "$(requests 'other .*range=bytes=5000-')" -eq 1 ]
}

@test "a file with a wrong hash is fetched once more, and an error the second time" {
    for how in wrong short long; do
        rm -rf "$HF_HOME"
        fault $how 1
        pull me/tiny >path
        said 'note: me/tiny:tiny-Q4_K_M.gguf: .* expected, .* found; removed and fetched again'
        whole
        rm -rf "$HF_HOME"
        fault $how 9
        [ "$(code "$QUILL" pull me/tiny)" -eq 6 ]
        said 'expected, .* found, twice; removed'
        [ -z "$(find "$folder/blobs" -type f)" ]
        [ ! -e "$folder/refs/main" ]
    done
    # what another writer has left wrong is noticed too
    mkdir -p "$folder/blobs"
    head -c 9000 /dev/zero >"$folder/blobs/$(sha256sum <"$TINY/a.gguf" | cut -d ' ' -f 1).incomplete"
    fault
    pull me/tiny >path
    said 'SHA-256 .* expected, .* found; removed and fetched again'
    whole
    # a small file by git's SHA-1
    printf '{"a": 1}' >"$HUB/me/dir/generation_config.json"
    pull me/dir >path
    printf 'blob 8\0{"a": 1}' | sha1sum | cut -d ' ' -f 1 >sum
    [ "$(readlink "$(cat path)/generation_config.json")" = "../../blobs/$(cat sum)" ]
    rm "$HUB/me/dir/generation_config.json"
}

@test "401, 403, 404 and 5xx are errors that say what to do, and 429 waits as long as it asks for" {
    fault token secret
    [ "$(code "$QUILL" pull me/tiny)" -eq 3 ]
    said '401: no such repository, or one that needs a token: check the name, or set HF_TOKEN'
    fault gated
    [ "$(code "$QUILL" pull me/tiny)" -eq 3 ]
    said "403: its owner asks for an agreement: accept it at $HF_ENDPOINT/me/tiny, then set HF_TOKEN"
    fault gone
    [ "$(code "$QUILL" pull me/tiny)" -eq 3 ]
    said 'me/tiny:tiny-Q4_K_M.gguf: 404: a file expected'
    for how in 'busy 1 1' 'dated 1'; do
        rm -rf "$HF_HOME"
        fault $how
        start=$(date +%s%N)
        pull me/tiny >path
        [ "$how" = 'dated 1' ] || [ $((($(date +%s%N) - start) / 1000000)) -ge 900 ]
        [ "$how" = 'dated 1' ] || said 'note: me/tiny: the server answers 429: waiting 1 s'
        whole
    done
    rm -rf "$HF_HOME"
    fault busy 9 4000
    [ "$(code "$QUILL" pull me/tiny)" -eq 6 ]
    said '429: the server asks to wait 4000 s'
    fault status 503 2
    pull me/tiny >path
    whole
    rm -rf "$HF_HOME"
    fault drop 2
    pull me/tiny >path
    whole
    rm -rf "$HF_HOME"
    fault status 501 99
    [ "$(code "$QUILL" pull me/tiny)" -eq 6 ]
    said 'answers 501; try again later'
    fault junk
    [ "$(code "$QUILL" pull me/tiny)" -eq 6 ]
    said 'is HF_ENDPOINT a Hub?'
    fault noetag
    [ "$(code "$QUILL" pull me/tiny)" -eq 6 ]
    said 'the ETag is missing'
}

@test "the token goes to the Hub and to no other host" {
    fault token secret
    HF_TOKEN=secret "$QUILL" pull me/tiny >path
    whole
    [ "$(requests 'auth=secret')" -eq "$(requests '^hub')" ]
    [ "$(requests '^other .*auth=none')" -eq 1 ]
    [ "$(requests '^other .*auth=secret')" -eq 0 ]
    # from its file, with the blanks that an editor leaves
    rm -rf "$HF_HOME" && mkdir "$HF_HOME" && echo "  secret " >"$HF_HOME/token"
    pull me/tiny >path
    whole
    HF_TOKEN=wrong
    [ "$(HF_TOKEN=wrong code "$QUILL" pull me/dir)" -eq 3 ]
    said 'or the token .* may not read it'
    not grep -q wrong errors
    [ "$(HF_TOKEN=$'a\nHost: b' code "$QUILL" pull me/tiny)" -eq 2 ]
}

@test "redirects are followed to HTTP only, and a limited number of them" {
    fault loop
    [ "$(code "$QUILL" pull me/tiny)" -eq 6 ]
    said 'at most 10 redirects expected'
    fault file
    [ "$(code "$QUILL" pull me/tiny)" -eq 6 ]
    said 'another protocol found: refused'
    [ "$(HF_ENDPOINT=ftp://127.0.0.1 code "$QUILL" pull me/tiny)" -eq 2 ]
    [ "$(HF_ENDPOINT=http://me@127.0.0.1 code "$QUILL" pull me/tiny)" -eq 2 ]
}

@test "an untrusted certificate is refused" {
    needs openssl
    openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 1 -subj /CN=localhost 2>/dev/null
    python3 -c 'import http.server, ssl
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert", "key")
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.timeout = 10
server.handle_request()' >port 2>/dev/null 3>&- &
    within 10 test -s port
    [ "$(HF_ENDPOINT="https://localhost:$(cat port)" code "$QUILL" pull me/tiny)" -eq 6 ]
    said 'localhost:[0-9]*: .*certificate'
    kill %1 2>/dev/null || true
}

@test "after a long silence of the server the request is repeated" {
    HF_HUB_DOWNLOAD_TIMEOUT=1
    fault stall 6000 1
    pull me/tiny >path
    whole
    [ "$(requests 'other .*range=bytes=6000-')" -eq 1 ]
}

@test "two processes that need one file fetch it once" {
    fault slow 2000
    "$QUILL" pull -q me/tiny >one 2>errors1 &
    first=$!
    "$QUILL" pull -q me/tiny >two 2>errors2 &
    second=$!
    ended $first
    [ "$status" -eq 0 ]
    ended $second
    [ "$status" -eq 0 ]
    cmp one two
    whole
    [ "$(requests 'other GET')" -eq 1 ]
    # the lock is the one that Python's filelock takes
    rm -rf "$HF_HOME"
    lock="$HF_HOME/hub/.locks/models--me--tiny/$(sha256sum <"$TINY/a.gguf" | cut -d ' ' -f 1).lock"
    mkdir -p "$(dirname "$lock")"
    fault
    python3 -c 'import fcntl, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
print(flush=True)
time.sleep(1.2)' "$lock" >held &
    within 10 test -s held
    pull me/tiny >path
    said 'waiting for another process that fetches it'
    whole
}

@test "a full disk is exit 6, and the received part is kept" {
    (ulimit -f 8; code "$QUILL" pull me/tiny >rc)
    [ "$(cat rc)" -eq 6 ]
    said 'cannot write: File too large; what came is kept: make room and run the same command again'
    [ "$(stat -c %s "$folder"/blobs/*.incomplete)" -eq 8192 ]
    : >"$HUB/log"
    pull me/tiny >path
    whole
    [ "$(requests 'other .*range=bytes=8192-')" -eq 1 ]
    # a cache that cannot be written
    [ "$(HF_HOME=/proc/nowhere code "$QUILL" pull me/tiny)" -eq 6 ]
    said 'cannot create'
}

@test "offline the cached model is used and named" {
    [ "$(HF_HUB_OFFLINE=1 code "$QUILL" -hf me/tiny --raw hi)" -eq 3 ]
    said 'HF_HUB_OFFLINE is set; me/tiny: a model in the cache expected, none found'
    [ "$(TRANSFORMERS_OFFLINE=1 code "$QUILL" -hf me/tiny --raw hi)" -eq 3 ]
    said 'TRANSFORMERS_OFFLINE is set; me/tiny: a model in the cache expected, none found'
    pull me/tiny:Q8_0 >path
    : >"$HUB/log"
    HF_HUB_OFFLINE=1 "$QUILL" pull me/tiny 2>errors | cmp - path
    said 'note: HF_HUB_OFFLINE is set: using me/tiny:Q8_0 from the cache'
    pull --offline me/tiny | cmp - path
    [ ! -s "$HUB/log" ]
    # nobody listens there
    HF_ENDPOINT=http://127.0.0.1:9 pull me/tiny | cmp - path
    said 'note: 127.0.0.1:9: .*: using me/tiny:Q8_0 from the cache'
    [ "$(HF_ENDPOINT=http://127.0.0.1:9 code "$QUILL" pull me/odd)" -eq 6 ]
    # what only looks never asks
    for args in "models" "inspect $TINY/a.gguf" "-m tiny -n 1 --raw hi" "--version"; do "$QUILL" $args </dev/null >/dev/null; done
    [ ! -s "$HUB/log" ]
}

@test "a new version reuses unchanged files, and the old version stays" {
    pull me/dir >path
    echo beef000000000000000000000000000000000000 >"$HUB/me/dir/.commit"
    printf '{"bos_token_id": 1}' >"$HUB/me/dir/generation_config.json"
    : >"$HUB/log"
    pull me/dir >newer
    rm "$HUB/me/dir/.commit" "$HUB/me/dir/generation_config.json"
    [ "$(requests 'other GET')" -eq 0 ] # the large ones are there
    [ "$(basename "$(cat newer)")" = beef000000000000000000000000000000000000 ]
    [ -e "$(cat path)/config.json" ]
    "$QUILL" inspect me/dir | grep -q beef
}

@test "quill models lists, and rm asks first" {
    "$QUILL" models 2>errors >list
    [ ! -s list ]
    said 'has no models; quill pull user/repo fetches one'
    pull me/tiny >path
    pull me/tiny:Q8_0 >path
    pull me/dir >path
    fault stall 2000
    "$QUILL" pull -q me/odd:Q5_0 >path 2>errors &
    within 20 begun odd
    [ "$(code "$QUILL" models rm -y me/odd)" -eq 6 ]
    said 'me/odd: another process is fetching it; nothing was removed'
    kill -KILL $!
    wait $! || true
    mkdir -p "$HF_HOME/hub/datasets--me--data/blobs" "$HF_HOME/hub/models--evil--a..b"
    "$QUILL" models >list
    [ "$(head -n 1 list | xargs)" = "NAME SIZE FAMILY TYPE LAST USE" ]
    grep -qE "^me/dir +[0-9.]+ KB +qwen3 +F32 +$(date +%Y)-" list
    grep -qE "^me/tiny:Q4_K_M +[0-9.]+ KB +llama +Q4_K_M +$(date +%Y)-" list
    grep -qE '^me/tiny:Q8_0 +[0-9.]+ KB +llama +Q8_0 ' list
    grep -qE '^me/odd +2.00 KB +- +incomplete +-$' list
    [ "$(wc -l <list)" -eq 5 ]
    [ "$("$QUILL" models --names | xargs)" = "me/dir me/tiny:Q4_K_M me/tiny:Q8_0" ]
    "$QUILL" models --json | python3 -c 'import json, sys
m = json.load(sys.stdin)
assert [x["type"] for x in m] == ["F32", "incomplete", "Q4_K_M", "Q8_0"], m
assert m[1]["path"] is None and m[2]["family"] == "llama" and m[2]["bytes"] > 9000, m'
    # no, nothing and yes
    for answer in n '' x yesterday; do
        drive <<EOF
spawn $QUILL models rm me/tiny:Q8_0
expect "remove me/tiny:Q8_0 ("
expect " KB)? [y/N] "
send "$answer\\r"
expect "nothing was removed"
exit 0
EOF
    done
    # what lies on stdin is no answer
    [ "$(echo y | code "$QUILL" models rm me/tiny:Q8_0)" -eq 2 ]
    [ "$("$QUILL" models --names | wc -l)" -eq 3 ]
    drive <<EOF
spawn $QUILL models rm me/tiny:Q8_0
expect "? [y/N] "
send "Yes\\r"
expect "me/tiny:Q8_0: removed"
exit 0
EOF
    [ "$("$QUILL" models --names | xargs)" = "me/dir me/tiny:Q4_K_M" ]
    [ "$(find "$folder/blobs" -type f | wc -l)" -eq 1 ]
    "$QUILL" models rm -q -y me/tiny me/odd me/dir
    [ "$(ls "$HF_HOME/hub")" = "$(printf 'datasets--me--data\nmodels--evil--a..b')" ]
    [ "$(code "$QUILL" models rm -y me/tiny)" -eq 3 ]
    for bad in "rm" "remove me/tiny" "list me"; do [ "$(code "$QUILL" models $bad)" -eq 2 ]; done
}

@test "a name in another case is the same model" {
    pull me/tiny >path
    : >"$HUB/log"
    pull ME/Tiny | cmp - path
    [ "$(requests ' GET /.*gguf')" -eq 0 ]
    [ "$("$QUILL" models --names)" = me/tiny:Q4_K_M ]
    rm -r "$folder/refs" # a download of a commit makes none
    pull me/tiny | cmp - path
    # other tools have made two folders of one repository
    cp -r "$folder" "$HF_HOME/hub/models--ME--tiny"
    [ "$(code "$QUILL" models rm -y Me/Tiny:Q4_K_M)" -eq 3 ]
    said 'several repositories have this name in other cases'
    "$QUILL" models rm -y -q me/tiny:Q4_K_M
    [ "$("$QUILL" models --names)" = ME/tiny:Q4_K_M ]
    "$QUILL" models rm -y -q me/tiny
    [ "$(ls "$HF_HOME/hub")" = "" ]
}

@test "rm of one model leaves the files of other tools, and rm of the repository takes them" {
    pull me/tiny >path
    head -c 300000 /dev/zero >"$folder/blobs/other"
    ln -s ../../blobs/other "$snapshot/pytorch_model.bin"
    "$QUILL" models rm -y me/tiny:Q4_K_M 2>errors
    said 'me/tiny:Q4_K_M: removed, '
    [ -s "$snapshot/pytorch_model.bin" ]
    [ ! -e "$snapshot/tiny-Q4_K_M.gguf" ]
    "$QUILL" models >list
    grep -qE '^me/tiny +(300 KB|293 KiB|0.30 MB) +- +- +-$' list
    "$QUILL" models rm -y me/tiny 2>errors
    said 'me/tiny: removed, '
    [ ! -e "$folder" ]
}

@test "a directory that quill cannot run is refused before its weights come" {
    [ -e "$HUB/me/other" ] || {
        cp -r "$HUB/me/dir" "$HUB/me/other"
        sed -i 's/"model_type": *"[a-z0-9]*"/"model_type": "starcoder2"/' "$HUB/me/other/config.json"
        cp -r "$HUB/me/dir" "$HUB/me/mute"
        rm "$HUB/me/mute/tokenizer.json"
    }
    for repo in other mute; do
        : >"$HUB/log"
        [ "$(code "$QUILL" pull "me/$repo")" -eq 3 ]
        if [ $repo = other ]; then said 'model_type: .*starcoder2'; else said 'me/mute: tokenizer.json expected beside the weights'; fi
        [ "$(requests 'GET .*safetensors$')" -eq 0 ]
    done
    rm -r "$HUB/me/other" "$HUB/me/mute"
}

@test "a cache that cannot be written still gives what it has" {
    [ "$(id -u)" -ne 0 ] || skip "root writes any directory"
    pull me/tiny >path
    rm -r "$HF_HOME/hub/.locks"
    find "$HF_HOME/hub" -type d -exec chmod a-w {} +
    pull me/tiny | cmp - path
    chmod u+w "$folder/refs" && rm "$folder/refs/main" && chmod a-w "$folder/refs"
    pull me/tiny | cmp - path
    echo beef000000000000000000000000000000000000 >"$HUB/me/tiny/.commit"
    pull me/tiny >newer
    rm "$HUB/me/tiny/.commit"
    cmp newer path
    said 'cannot \(create\|write\): .*using me/tiny:Q4_K_M from the cache'
    chmod -R u+w "$HF_HOME"
}

@test "quill models lists the others beside a repository that cannot be read" {
    [ "$(id -u)" -ne 0 ] || skip "root reads any directory"
    pull me/tiny >path
    pull me/dir >path
    chmod 0 "$HF_HOME/hub/models--me--dir"
    [ "$("$QUILL" models --names)" = me/tiny:Q4_K_M ]
    "$QUILL" models >list 2>errors
    grep -qE '^me/dir +0 B +- +- +-$' list
    said 'models--me--dir.*: cannot read'
    "$QUILL" models rm -y -q me/tiny
    chmod 755 "$HF_HOME/hub/models--me--dir"
}

@test "quill models lists the others beside a file that cannot be read" {
    [ "$(id -u)" -ne 0 ] || skip "root reads any file"
    pull me/tiny >path
    pull me/tiny:Q8_0 >path
    pull me/dir >path
    chmod 000 "$(readlink -f "$snapshot/tiny-Q4_K_M.gguf")"
    "$QUILL" models >list 2>errors
    grep -qE '^me/dir +[0-9.]+ KB +qwen3 +F32 ' list
    grep -qE '^me/tiny:Q4_K_M +[0-9.]+ KB +- +Q4_K_M ' list
    grep -qE '^me/tiny:Q8_0 +[0-9.]+ KB +llama +Q8_0 ' list
    said 'quill: note: .*tiny-Q4_K_M.gguf: .*Permission denied'
    "$QUILL" models --json 2>errors | grep -q '"family": *"-"'
    # a directory whose index cannot be read is no model
    index="$HF_HOME/hub/models--me--dir/snapshots/$COMMIT/model.safetensors.index.json"
    chmod 000 "$(readlink -f "$index")"
    [ "$("$QUILL" models --names 2>errors | xargs)" = "me/tiny:Q4_K_M me/tiny:Q8_0" ]
    said 'quill: note: .*index.json: .*Permission denied'
    [ "$(code "$QUILL" inspect me/dir)" -eq 6 ]
}

@test "quill models names a file that is no model" {
    pull me/tiny >path
    pull me/tiny:Q8_0 >path
    printf 'not a model' >"$(readlink -f "$snapshot/tiny-Q4_K_M.gguf")"
    "$QUILL" models >list 2>errors
    grep -qE '^me/tiny:Q4_K_M +[0-9.]+ [KM]?B +- +Q4_K_M ' list
    grep -qE '^me/tiny:Q8_0 +[0-9.]+ KB +llama +Q8_0 ' list
    said 'quill: note: .*tiny-Q4_K_M.gguf: '
    run -2 "$QUILL" models --names --json
}

@test "a pipe in place of refs/main is not waited for" {
    pull me/tiny >path
    rm "$folder/refs/main"
    mkfifo "$folder/refs/main"
    [ "$(timeout 60 "$QUILL" models --names)" = me/tiny:Q4_K_M ]
    timeout 60 "$QUILL" -m me/tiny -n 1 --raw hi </dev/null >answer
    [ "$(code timeout 60 "$QUILL" pull me/tiny)" -eq 6 ]
    said 'refs/main: a file expected, something else found; remove it'
    timeout 60 "$QUILL" models rm -q -y me/tiny
    [ ! -e "$folder" ]
}

@test "rm never follows links that lead out of the cache" {
    pull me/tiny >path
    echo precious >outside
    mkdir away && echo precious >away/file
    ln -s "$PWD/away" "$folder/snapshots/$COMMIT/away"
    ln -s ../../../../../outside "$folder/snapshots/$COMMIT/outside-Q5_0.gguf"
    "$QUILL" models rm -y -q me/tiny:Q5_0
    [ -e outside ]
    whole
    "$QUILL" models rm -y -q me/tiny
    [ -e outside ]
    [ -e away/file ]
    [ ! -e "$folder" ]
    # a repository, its snapshots or its blobs that are a link
    for linked in repo snapshots blobs; do
        rm -rf "$HF_HOME" other
        pull -q me/tiny >path
        pull -q me/tiny:Q8_0 >path
        case $linked in
        repo) mv "$folder" other && ln -s "$PWD/other" "$folder" ;;
        *) cp -rL "$folder/$linked" other && rm -r "$folder/$linked" && ln -s "$PWD/other" "$folder/$linked" ;;
        esac
        find other -type f | sort >before
        [ -s before ]
        [ "$(code "$QUILL" models rm -y me/tiny:Q8_0)" -eq 6 ]
        said 'cannot remove: a directory of the cache on its way is a link, which rm does not follow'
        find other -type f | sort | cmp - before
        "$QUILL" models rm -y -q me/tiny
        [ ! -e "$folder" ]
        find other -type f | sort | cmp - before
    done
}

@test "quill and the huggingface_hub package read each other's caches" {
    python="${QUILL_HUB_PYTHON:-python3}"
    "$python" -c 'import huggingface_hub' 2>/dev/null || skip "the Python package huggingface_hub is not installed"
    pull me/tiny >path
    pull me/dir >dir
    cat >theirs.py <<'PYTHON'
import os, sys
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download
mine, theirs = sys.argv[1:]
print(hf_hub_download("me/tiny", "tiny-Q4_K_M.gguf", local_files_only=True))
print(snapshot_download("me/dir", local_files_only=True))
repos = {r.repo_id: r for r in scan_cache_dir().repos}
assert set(repos) == {"me/tiny", "me/dir"}, repos
assert not scan_cache_dir().warnings, scan_cache_dir().warnings
assert repos["me/tiny"].size_on_disk == os.path.getsize(mine), repos
PYTHON
    HF_HUB_OFFLINE=1 "$python" theirs.py "$TINY/a.gguf" x >found
    cat path dir | cmp - found
    # what is there is not fetched again
    : >"$HUB/log"
    HF_HUB_DISABLE_XET=1 "$python" -c 'from huggingface_hub import hf_hub_download
print(hf_hub_download("me/tiny", "tiny-Q4_K_M.gguf"))' 2>/dev/null | cmp - path
    [ "$(requests 'other GET')" -eq 0 ]
    # the other way round
    rm -rf "$HF_HOME"
    HF_HUB_DISABLE_XET=1 "$python" -c 'from huggingface_hub import hf_hub_download, snapshot_download
hf_hub_download("me/tiny", "tiny-Q4_K_M.gguf")
hf_hub_download("me/tiny", "README.md")
snapshot_download("me/dir")' 2>errors >/dev/null
    : >"$HUB/log"
    "$QUILL" models >list
    grep -q '^me/tiny:Q4_K_M  ' list
    grep -q '^me/dir  ' list
    HF_HUB_OFFLINE=1 pull me/tiny | cmp - path
    "$QUILL" -m me/dir --greedy -n 2 --raw hi </dev/null >/dev/null
    [ ! -s "$HUB/log" ]
    pull me/tiny >again
    cmp again path
    pull me/dir | cmp - dir
    [ "$(requests 'other GET')" -eq 0 ]
    "$QUILL" models rm -y -q me/tiny me/dir
    HF_HUB_OFFLINE=1 "$python" -c 'from huggingface_hub import scan_cache_dir
assert not scan_cache_dir().repos'
}

@test "on a terminal a line shows progress, rate and time left" {
    needs_terminal
    fault slow 600
    drive --show >shown <<EOF
spawn $QUILL pull me/tiny
expect "tiny-Q4_K_M.gguf"
expect "KB of"
expect "/s, 0:0"
expect " left"
expect "%"
exit 0
EOF
    whole
}

@test "libcurl is opened only to fetch, and without it fetching is an error in one line" {
    needs ldd strace
    ldd "$QUILL" >libraries || skip "the binary is static"
    not grep -qi curl libraries
    strace -f -e trace=openat "$QUILL" -m "$TINY/a.gguf" -n 1 --raw hi </dev/null >out 2>traced || skip "strace may not trace here"
    not grep -q 'libcurl\|libssl' traced
}
