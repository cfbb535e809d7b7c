#!/usr/bin/env bats
# docs.bats: the man page and the shells' completions, read by the programs they are for; what make install places.

load rig/helpers

# The pages whose examples are run, and the commands that need libcurl.
PAGES=(README.md docs/usage.md docs/structured.md docs/beams.md docs/speculation.md docs/batch.md docs/blend.md docs/quantize.md)
NEEDS_LIBCURL='-hf |quill (pull|models)|-m Qwen3-8B'

setup() {
    enter
    touch model.gguf
    mkdir dir
}

# What bash would offer for the last of these words; the ones in front are complete.
offered() {
    bash -c 'eval "$("$0" --completions bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quill
        printf "%s\n" "${COMPREPLY[@]}"' "$QUILL" "$@" | sort | xargs
}

@test "the man page has nothing that mandoc or groff would complain about" {
    needs mandoc groff
    "$QUILL" --man >quill.1
    mandoc -T lint quill.1
    groff -man -ww -T utf8 quill.1 2>errors >page
    [ ! -s errors ]
    [ "$(groff -man -T ascii -P -cbu quill.1 | wc -L)" -le 80 ]
    [ "$(groff -man -T ascii -P -cbu quill.1 | wc -l)" -lt 380 ]
    for section in NAME SYNOPSIS MODES OPTIONS 'CHAT COMMANDS' 'EXIT STATUS' ENVIRONMENT FILES EXAMPLES; do
        grep -qx ".SH $section" quill.1
    done
}

# A configuration file with sections.
sections() {
    export XDG_CONFIG_HOME="$PWD/conf"
    mkdir -p conf/quill
    printf '%s\n' 'temp = 0.5 # [none]' '[brief]' 'n = 20' ' [ letters ] # a comment' '[my-other]' 'stop = "[x]"' >conf/quill/config
}

@test "bash completes modes, options, choices and files" {
    [ "$(offered quill ben)" = bench ]
    [ "$(offered quill --thi)" = --think ]
    [ "$(offered quill --think '')" = "hide high low medium off on show" ]
    [ "$(offered quill --think = s)" = show ]
    [ "$(offered quill --device =)" = "auto cpu cuda" ]
    [ "$(offered quill -m mod)" = model.gguf ]
    [ "$(offered quill --speculate '')" = "builtin dir model.gguf mtp ngram" ]
    [ "$(offered quill batch -md mo)" = model.gguf ]
    [ "$(offered quill --file '')" = "dir model.gguf" ]
    [ "$(offered quill inspect m)" = model.gguf ]
    [ "$(offered quill kv info m)" = model.gguf ]
    # models of the cache behind -m, pull and models rm; bash takes a name with a colon apart
    export HF_HOME="$PWD/hf"
    mkdir -p hf/hub/models--me--tiny/snapshots/c0ffee
    touch hf/hub/models--me--tiny/snapshots/c0ffee/{a-Q4_K_M,a-Q8_0}.gguf
    [ "$(offered "$QUILL" models '')" = "list rm" ]
    [ "$(offered "$QUILL" chunk '')" = "add" ]
    [[ "$(offered "$QUILL" chunk add '')" != "add" ]]
    [ "$(offered "$QUILL" models rm '')" = "me/tiny:Q4_K_M me/tiny:Q8_0" ]
    [ "$(offered "$QUILL" models rm me/tiny :)" = "Q4_K_M Q8_0" ]
    [ "$(offered "$QUILL" models rm me/tiny : Q8)" = "Q8_0" ]
    [ "$(offered "$QUILL" pull me)" = "me/tiny:Q4_K_M me/tiny:Q8_0" ]
    [ "$(offered "$QUILL" -m m)" = "me/tiny:Q4_K_M me/tiny:Q8_0 model.gguf" ]
    [ "$(offered quill kv '')" = "check cut diff info list remove" ]
    [ "$(offered quill kv c)" = "check cut" ]
    [ "$(offered quill kv -n 10 cut m)" = model.gguf ]
    [[ " $(offered quill --chat-template '') " == *" chatml "*" llama3 "*" mistral-v7 "* ]]
    [ "$(offered quill --chat-template chatm)" = chatml ]
    [ "$(offered quill hello m)" = "" ]
    [ "$(offered quill -p m)" = "" ]
    [ "$(offered quill -- ben)" = "" ]
    # sections of the configuration file behind --preset
    sections
    [ "$(offered quill --preset '')" = "brief letters my-other" ]
    [ "$(offered quill --preset = l)" = letters ]
    [ "$(offered quill bench --preset b)" = brief ]
    echo '[two words]' >>conf/quill/config
    [ "$(offered quill --preset t)" = 'two words' ] # xargs takes the backslash
    [ "$(XDG_CONFIG_HOME= HOME="$PWD/nobody" offered quill --preset '')" = "" ]
    [ "$(XDG_CONFIG_HOME=conf HOME="$PWD/nobody" offered quill --preset '')" = "" ]
    # each mode has its own
    [ "$(offered quill bench --roof)" = --roofline ]
    [ "$(offered quill --roof)" = "" ]
    [ "$(offered quill bench -o '')" = "csv json md table" ]
    [ "$(offered quill tokenize --i)" = --ids ]
    [ "$(offered quill --determ)" = --deterministic ]
    # quantize's third word is a type
    [ "$(offered quill quantize m)" = model.gguf ]
    [ "$(offered quill quantize --imatrix i model.gguf m)" = model.gguf ]
    [ "$(offered quill quantize --imatrix = i model.gguf m)" = model.gguf ]
    [ "$(offered quill quantize model.gguf out Q4_K_)" = "Q4_K_M Q4_K_S" ]
    [ "$(offered quill quantize --dry-run model.gguf out --imatrix i MX)" = MXFP4 ]
}

@test "bash runs nothing that a file's name in the cache contains" {
    export HF_HOME="$PWD/hf"
    evil=hf/hub/models--me--evil/snapshots/c0ffee
    mkdir -p "$evil"
    touch "$evil/"{'a$(touch ran).gguf','b`touch ran`.gguf','c d.gguf'}
    offered "$QUILL" -m me/ >names
    offered "$QUILL" models rm me/evil :
    offered "$QUILL" pull me
    [ ! -e ran ]
    grep -qF 'me/evil:a$(touch ran).gguf me/evil:b`touch ran`.gguf me/evil:c d.gguf' names
    # each is quoted for the command line, and a part that is quoted already can go on
    for word in 'me/evil:a$(touch ran).gguf' 'me/evil:b`touch ran`.gguf' 'me/evil:c d.gguf'; do
        printf '%q' "$word" >quoted
        [ "me/evil:$(offered "$QUILL" pull "$(head -c 12 quoted)")" = "$word" ]
    done
    # in quotes, none that would need another kind of quotes
    [ "$(offered "$QUILL" pull '"me/evil')" = "" ]
}

@test "bash completes a model's name up to and behind its colon" {
    needs_terminal
    export HF_HOME="$PWD/hf"
    mkdir -p hf/hub/models--me--tiny/snapshots/c0ffee
    touch hf/hub/models--me--tiny/snapshots/c0ffee/{a-Q4_K_M,a-Q8_0}.gguf Q8_file
    mkdir bin && ln -s "$QUILL" bin/quill
    "$QUILL" --completions bash >quill.bash
    PATH="$PWD/bin:$PATH" QUILL_TEST_PATIENCE=20 drive <<'EOF'
spawn bash --norc --noprofile -i
send "PS1='% '; bind 'set bell-style none'; bind 'set show-all-if-ambiguous on'; source quill.bash; echo REA''DY\n"
expect "READY"
send "quill -m me/\t"
expect "% quill -m me/tiny:Q"
send "\t"
expect "Q8_0"
expect "% quill -m me/tiny:Q"
send "8\t"
expect "8_0 "
send "\x15exit\n"
exit 0
EOF
}

@test "fish completes modes, options, choices and files" {
    needs fish
    "$QUILL" --completions fish >quill.fish
    fish --no-execute quill.fish
    offers() { HOME="$PWD" fish -c "source quill.fish; complete -C '$1'" | cut -f 1 | sort | xargs; }
    [ "$(offers 'quill ben')" = bench ]
    [ "$(offers 'quill --think ')" = "hide high low medium off on show" ]
    [ "$(offers 'quill --think=s')" = --think=show ]
    [ "$(offers 'quill -m mod')" = model.gguf ]
    [ "$(offers 'quill --speculate m')" = "model.gguf mtp" ]
    [ "$(offers 'quill --speculate bui')" = builtin ]
    [ "$(offers 'quill inspect mod')" = model.gguf ]
    [ "$(offers 'quill kv info mod')" = model.gguf ]
    [ "$(offers 'quill kv c')" = "check cut" ]
    [ "$(offers 'quill quantize model.gguf out Q4_K_')" = "Q4_K_M Q4_K_S" ]
    [ "$(offers 'quill quantize mod')" = model.gguf ]
    [ "$(offers 'quill --chat-template chatm')" = chatml ]
    [ "$(offers 'quill bench --roof')" = --roofline ]
    [ "$(offers 'quill --roof')" = "" ]
    sections
    [ "$(offers 'quill --preset ')" = "brief letters my-other" ]
    [ "$(offers 'quill bench --preset=l')" = --preset=letters ]
    [ "$(XDG_CONFIG_HOME=conf offers 'quill --preset ')" = "" ]
}

@test "each mode has one line in the help and in the completions" {
    "$QUILL" --help | sed -n '/^Other modes/,/^$/p' >modes
    not grep '^[a-z"]' modes
    for mode in decode kv template; do
        "$QUILL" --completions zsh | grep -qE "^        '$mode:[A-Z].*'$"
        "$QUILL" --completions fish | grep -qE -- "-a $mode -d '[A-Z].*'$"
    done
    # an option's text is also shown without its neighbours
    not grep -E "'the same (from|for)" <("$QUILL" --completions fish)
}

@test "zsh can load its completions" {
    needs zsh
    "$QUILL" --completions zsh >_quill
    zsh -n _quill
    [ "$(head -n 1 _quill)" = "#compdef quill" ]
    zsh -f -c 'autoload -Uz compinit; compinit -u -D; source ./_quill 2>/dev/null; whence -w _quill' | grep -q 'function'
}

@test "zsh completes modes, subcommands, template names and files" {
    needs zsh
    needs_terminal
    sections
    "$QUILL" --completions zsh >_quill
    TERM=xterm HOME="$PWD" QUILL_TEST_PATIENCE=20 drive <<'EOF'
spawn zsh -f -i
send "PS1='% '; fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; compdef _quill quill; unsetopt auto_menu; echo REA''DY\n"
expect "READY"
send "quill kv c\t\t"
expect "check"
expect "cut"
send "\x15\nquill --chat-template mistral-v\t\t"
expect "mistral-v7"
send "\x15\nquill benc\t"
expect "quill bench"
send "\x15\nquill --speculate=mod\t"
expect "quill --speculate=model.gguf"
send "\x15\nquill --speculate bui\t"
expect "quill --speculate builtin"
send "\x15\nquill kv info mod\t"
expect "quill kv info model.gguf"
send "\x15\nquill quantize a.gguf b.gguf Q4_K_\t\t"
expect "Q4_K_M"
send "\x15\nquill --preset=lett\t"
expect "quill --preset=letters"
send "\x15\nquill --dev\t"
expect "quill --device"
send "\x15\nexit\n"
exit 0
EOF
}

@test "-h has at most 30 lines of 80 columns in every mode, and names existing options only" {
    for mode in "" bench perplexity inspect tokenize template logits batch prefill decode kv quantize pull models chunk; do
        "$QUILL" $mode -h >short
        [ "$(wc -l <short)" -le 30 ]
        [ "$(wc -L <short)" -le 80 ]
        grep -q -- "--help lists all options" short
        # every flag that it names is in the whole help
        "$QUILL" $mode --help >long
        [ "$(wc -l <long)" -gt "$(wc -l <short)" ] || [ "$mode" = kv ]
        sed -n '/^Common options/,/^$/p' short | grep -oE '^ +-[-a-z]+' | while read -r flag; do grep -qE -- "^ +(-[a-z]+, )?$flag\\b" long; done
    done
}

@test "-h cuts no text in a list, and says what a default of 0 or -1 means" {
    [[ "$("$QUILL" template -h)" == *"whether the model thinks"$'\n'* ]]
    [[ "$("$QUILL" prefill -h)" == *"where the KV is written"$'\n'* ]]
    [[ "$("$QUILL" bench -h)" == *" a random model"$'\n'* ]]
    "$QUILL" -h >short
    grep -q 'threads (default: one for each physical core)$' short
    grep -q 'context in tokens (default: the model.s)$' short
    not grep -E 'default -?[0-9]+: |default -1' short
}

# Without the examples that need another machine or minutes.
not_here() {
    grep -vE 'scripts/|make |1\.1b|--roofline|on a terminal|-m qwen3.gguf$|producer' || true
}

# A Hub with the models that are named, and a cache of its own.
stage_hub() {
    export HF_HOME="$PWD/hf"
    for file in Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0 Qwen3-1.7B-GGUF/Qwen3-1.7B-Q8_0 Qwen3-8B-GGUF/Qwen3-8B-Q4_K_M Qwen3-8B-GGUF/Qwen3-8B-Q5_K_M Qwen3-14B-GGUF/Qwen3-14B-Q8_0; do
        mkdir -p "hub/Qwen/$(dirname $file)"
        cp model.gguf "hub/Qwen/$file.gguf"
    done
    python3 "$BATS_TEST_DIRNAME/rig/hub_server.py" hub >/dev/null 2>&1 3>&- &
    within 20 test -e hub/port
    HF_ENDPOINT="http://127.0.0.1:$(cut -d ' ' -f 1 hub/port)"
    export HF_ENDPOINT no_proxy='*'
    quill pull -q Qwen/Qwen3-0.6B-GGUF >/dev/null 2>errors || grep -q 'libcurl.so.4 expected' errors
    quill pull -q Qwen/Qwen3-8B-GGUF >/dev/null 2>errors || touch no_libcurl
}

# A folder in which the examples find what they name; models that are named are tiny ones.
stage() {
    "$MAKE_TINY" model.gguf arch=qwen2 template=chatml ctx=2048 seed=2
    cp model.gguf qwen3.gguf
    "$MAKE_TINY" Qwen3-0.6B/ arch=qwen3 template=chatml ctx=2048
    mkdir -p bin xdg/quill exact/quill
    echo 'isa = scalar' >exact/quill/config
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$QUILL" >bin/quill
    printf '#!/bin/sh\nshift\nexec "$@"\n' >bin/ssh
    printf '#!/bin/sh\nexec cat\n' >bin/jq
    chmod +x bin/*
    git init -q . && git add model.gguf 2>/dev/null
    for text in letter notes rules long text prompt; do echo "Tom went to the mill. He put the blue cup there." >$text.txt; done
    cp letter.txt text
    mkdir notes
    cp letter.txt notes/may.txt
    cp letter.txt notes/june.txt
    printf 'Tom paid.\n---\nIt was a boat.\n' >all.txt
    "$MAKE_TINY" model-f16.gguf arch=llama dim=256 ctx=512 type=F16 seed=3
    cp letter.txt test.txt
    cp letter.txt calibration.txt
    for i in $(seq 20); do cat letter.txt; done >wiki.test.raw
    echo '{"id":1,"prompt":"hello","max_tokens":5}' >jobs.jsonl
    echo '[{"role":"user","content":"hi"}]' >messages.json
    echo '{% for m in messages %}{{ m.content }}{% endfor %}' >t.jinja
    quill perplexity -m model.gguf -f text --kl-base logits >/dev/null
    quill prefill -m model.gguf --no-stdin --kv-out long.kv "a text that is long enough to be cut after a hundred tokens, for it goes on and on and on, and then on, and on" </dev/null
    cp long.kv a.kv && cp long.kv b.kv
    stage_hub
    awk '/^```/ { on = on ? 0 : /^```$/ ? 1 : 2; next } on == 1' "$TOP/docs/usage.md" | sed 's|~/models|.|' >xdg/quill/config
}

@test "every example of the help texts and of the man page runs" {
    PATH="$PWD/bin:$PATH"
    needs_builtin
    needs python3
    stage
    { for mode in "" bench perplexity inspect tokenize template logits batch prefill decode kv quantize pull models chunk; do
        "$QUILL" $mode --help | sed -n '/^Examples$/,/^$/p' | grep '^  ' | sed 's/^  //' | not_here
    done
    "$QUILL" --man | sed -n '/^\.EX/,/^\.EE/p' | grep -v '^\.E' | sed 's/\\-/-/g; s/\\(dq/"/g; s/\\(aq/'"'"'/g; s/\\e/\\/g' | not_here; } | sort -u >commands
    [ "$(wc -l <commands)" -gt 30 ]
    [ ! -e no_libcurl ] || { grep -vE -- "$NEEDS_LIBCURL" commands >fewer && mv fewer commands; }
    while read -r line; do
        case "$line" in *"models rm"*) quill pull -q Qwen/Qwen3-8B-GGUF && quill pull -q Qwen/Qwen3-0.6B-GGUF ;; *"-m Qwen3-8B-GGUF"*) quill pull -q Qwen/Qwen3-8B-GGUF ;; esac >/dev/null
        case "$line" in *--preset* | *--show-config*) export XDG_CONFIG_HOME="$PWD/xdg" ;; *) export XDG_CONFIG_HOME=/dev/null ;; esac
        timeout 60 bash -o pipefail -c "$line" </dev/null >out 2>errors || { echo "$line: $?"; cat errors; false; }
    done <commands
}

@test "every example of the pages runs and prints what the page shows" {
    PATH="$PWD/bin:$PATH"
    needs_builtin
    [[ "$name" == quill-stories* ]] || skip "the pages show the answers of quill-stories"
    needs python3
    stage
    [ ! -e no_libcurl ] || export PAGES_SKIP="$NEEDS_LIBCURL"
    PAGES_CONFIG="$PWD/xdg" PAGES_EXACT="$PWD/exact" python3 "$BATS_TEST_DIRNAME/rig/pages.py" ${PAGES_UPDATE:+--update} "${PAGES[@]/#/$TOP/}"
}

# page HOW SHOWN PRINTED: a page whose command prints PRINTED, and which shows SHOWN.
page() {
    printf '```sh\necho %q\n```\n\n```text %s\n%s\n```\n' "$3" "$1" "$2" >page.md
    python3 "$BATS_TEST_DIRNAME/rig/pages.py" page.md
}

@test "a page that shows another output than its command prints is found" {
    needs python3
    page "" "model  136acd55, 13 tokens" "model  136acd55, 13 tokens"
    page "" "in ... s" "in 0.2 s"
    page rates "1  29  2.51  eog" "1  29    13.75  eog"
    page json '{"text":"a","n":5,"ms":1.5,"seed":3}' '{"text":"a","n":5,"ms":2.5,"seed":4}'
    page labels "pp64 1.0" "pp64 2.0"
    not page "" "model  136acd55, 13 tokens" "model  840508e2, 13 tokens"
    not page rates "1  29  2.51  eog" "1  31  2.51  eog"
    not page json '{"text":"a","n":5}' '{"text":"b","n":5}'
    not page json '[{"n":5},{"n":6}]' '[{"n":5},{"n":7}]'
    not page labels "pp64 1.0" "pp128 1.0"
}

@test "docs/architecture.md says how long its reading path is, and its functions of main.c exist" {
    page="$TOP/docs/architecture.md"
    sed -n "/^## An evening's reading path/,/^## Rooms/p" "$page" >path
    grep -oE '^\| [a-z/_.]+(, [a-z/_.]+)* \|' path | tr -d '|,' | xargs -n 1 | grep -F . >files
    [ "$(wc -l <files)" -ge 15 ]
    lines=$(cd "$TOP" && xargs cat <"$OLDPWD/files" | wc -l)
    told=$(sed -n 's/^About \([0-9]*\),\([0-9]*\) lines.*/\1\2/p' path)
    echo "$lines lines, $told told"
    [ $((lines * 100)) -ge $((told * 95)) ]
    [ $((lines * 100)) -le $((told * 105)) ]
    for name in $(sed -n 's/^| main.c | \([^|]*\) |.*/\1/p' path | grep -oE '`[a-z_]+`' | tr -d '`'); do
        grep -qE "^[a-zA-Z].*\b$name\(" "$TOP/main.c"
    done
}

@test "docs/usage.md names every JSON field that is printed" {
    needs python3
    "$MAKE_TINY" model.gguf arch=qwen2 template=chatml ctx=512
    export QUILL_MODEL="$PWD/model.gguf"
    "$QUILL" --json --greedy -n 3 --logprobs 1 hi </dev/null >answer
    "$QUILL" inspect --json >inspect
    "$QUILL" bench -q -p 4 -n 2 -r 1 -o json >bench
    "$QUILL" perplexity --json -p "hello hello" --kv-error >perplexity
    python3 - answer inspect bench perplexity "$TOP/docs/usage.md" <<'PYTHON'
import json, re, sys
named = set(re.findall(r"[`\"]([a-z0-9_]+)[`\"]", open(sys.argv[-1]).read().split("## JSON")[1].split("## Reading")[0]))
def keys(j, skip=("config", "metadata", "roofline", "gpu")):
    if isinstance(j, list):
        j = {} if not j else j[0] if isinstance(j[0], dict) else {}
    for k, v in j.items() if isinstance(j, dict) else ():
        yield k
        if k not in skip:
            yield from keys(v)
for name in sys.argv[1:-1]:
    missing = set(keys(json.load(open(name)))) - named
    assert not missing, (name, missing)
PYTHON
}

@test "make install places the binary, the page and the completions, and uninstall removes them" {
    case "$QUILL" in */build/release/quill | "$TOP/quill") ;; *) skip "another build than the one that is installed" ;; esac
    needs make
    make -C "$TOP" install DESTDIR="$PWD/the root" PREFIX=/usr >/dev/null
    (cd "the root" && find . -type f | sort) >placed
    printf '%s\n' ./usr/bin/quill ./usr/share/bash-completion/completions/quill \
        ./usr/share/fish/vendor_completions.d/quill.fish ./usr/share/man/man1/quill.1 \
        ./usr/share/zsh/site-functions/_quill | cmp - placed
    "$QUILL" --man | cmp - "the root/usr/share/man/man1/quill.1"
    make -C "$TOP" uninstall DESTDIR="$PWD/the root" PREFIX=/usr >/dev/null
    [ -z "$(find "the root" -type f)" ]
}

@test "make uninstall removes files of its prefix only, which may have a space or begin with ~/" {
    needs make
    mkdir -p 'a b/bin' .local/bin
    touch a 'a b/bin/quill' 'a b/bin/other' .local/bin/quill
    make -C "$TOP" uninstall DESTDIR= PREFIX="$PWD/a b"
    [ ! -e 'a b/bin/quill' ]
    [ -e 'a b/bin/other' ]
    [ -e a ]
    HOME="$PWD" make -C "$TOP" uninstall DESTDIR= PREFIX='~/.local'
    [ ! -e .local/bin/quill ]
}

# A tree 'a checkout' with the Makefile and files that make takes for built; a test there prints where it finds them.
checkout() {
    needs make
    built=(quill tests/make_tiny tests/quill_twin tests/faults.so tests/test_one)
    mkdir -p 'a checkout'/{scripts,tests,build/release/tests}
    cd 'a checkout' || return 1
    cp "$TOP/Makefile" .
    touch tests/test_one.c tests/one.bats "${built[@]/#/build/release/}"
    printf '#!/bin/sh\necho "$QUILL $QUILL_TEST_TMP"\n' >scripts/run_test.sh
    chmod +x scripts/run_test.sh
    old=(NO_CUDA=1 BUILD=build/release "${built[@]/#/-obuild/release/}")
}

@test "make tests a checkout whose path has a space" {
    checkout
    env -u MAKEFLAGS make "${old[@]}" one.bats | grep -qxF "$PWD/build/release/quill "
    env -u MAKEFLAGS make "${old[@]}" test_one | grep -qF " $PWD/build/release/tmp/test_one"
}

@test "make keeps no page of a binary that failed" {
    checkout
    printf '#!/bin/sh\necho half a page\nexit 1\n' >build/release/quill
    chmod +x build/release/quill
    not env -u MAKEFLAGS make "${old[@]}" build/release/quill.1
    [ ! -e build/release/quill.1 ]
    printf '#!/bin/sh\necho a page\n' >build/release/quill
    env -u MAKEFLAGS make "${old[@]}" build/release/quill.1
    grep -qx 'a page' build/release/quill.1
}
