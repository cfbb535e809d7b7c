#!/usr/bin/env bats
# config.bats: the configuration file: defaults, presets, precedence, errors of a line.

load rig/helpers

models() {
    "$MAKE_TINY" "$TINY/base.gguf" seed=1 ctx=256
    "$MAKE_TINY" "$TINY/chat.gguf" arch=qwen2 template=chatml ctx=512
}

setup() {
    enter
    export XDG_CONFIG_HOME="$PWD/xdg" HOME="$PWD/home"
    mkdir -p xdg/quill home/.config/quill
}

config() { # config TEXT: is the file
    printf '%s\n' "$1" >xdg/quill/config
}

# shown OPTION ARGS...: its value and origin as --show-config has them
shown() {
    local name="$1"
    shift
    "$QUILL" --show-config "$@" | sed -n "s/^$name = *//p" | tr -s ' '
}

@test "the file gives defaults; environment and flags come first" {
    config "# a comment
model = $TINY/base.gguf
temp = 0.25    # cooler
top_k = 7
greedy = on"
    here="$PWD/xdg/quill/config"
    [ "$(shown temp)" = "0.25 # $here:3" ]
    [ "$(shown top-k)" = "7 # $here:4" ]
    [ "$(shown min-p)" = "0.05 # the default, or the model's file" ]
    [ "$(shown model)" = "$TINY/base.gguf # $here:2" ]
    [ "$(QUILL_MODEL=other.gguf shown model)" = "other.gguf # QUILL_MODEL" ]
    [ "$(QUILL_MODEL=other.gguf shown model -m third.gguf)" = "third.gguf # the command line" ]
    [ "$(shown temp --temp 1)" = "1 # the command line" ]
    [ "$(shown greedy)" = "on # $here:5" ]
    [ "$(shown greedy --greedy=off)" = "off # the command line" ]
    # it is what runs
    "$QUILL" -n 5 hello </dev/null >out
    "$QUILL" --no-config -m "$TINY/base.gguf" --greedy -n 5 hello </dev/null | cmp - out
    [ "$(shown temp --no-config)" = "0.8 # the default, or the model's file" ]
}

@test "the output of --show-config is a valid configuration file" {
    config "model = $TINY/base.gguf
stop = \"###\"
stop = \" a b \"
logit-bias = 5-inf
kv-dir = ~/kv,size=1M
cache-type-k = q8_0"
    "$QUILL" --show-config --seed 3 | sed 's/ *# [^"]*$//' >again
    "$QUILL" --show-config --seed 3 | grep -q '^stop = "###" .* # .*config$' # of two lines
    cp again xdg/quill/config
    "$QUILL" --show-config | sed 's/ *# [^"]*$//' | cmp - again
    grep -q "^kv-dir = $HOME/kv,size=1048576" again
}

@test "quotes keep blanks, # and the quotes between them" {
    said() { # said VALUE TEXT: the file's VALUE is TEXT
        config "stop = $1"
        [ "$("$QUILL" -m "$TINY/base.gguf" --json --show-config | sed -n 's/^stop = \(.*[^ ]\) *# [^#]*$/\1/p')" = "$2" ]
    }
    said '" a # b "  # c' '" a # b "'
    said '"say "hi" now"' 'say "hi" now'
    said '""hi" he said"' '""hi" he said"'
    said '"a \"b\" \n"' 'a \"b\" \n'
    said "'a b'" "'a b'"
    said 'a "b # c" d' 'a "b'
}

@test "the file may begin with a byte order mark" {
    printf '\xef\xbb\xbftemp = 0.25\r\ntop-k = 7\r\n' >xdg/quill/config
    [ "$(shown temp)" = "0.25 # $PWD/xdg/quill/config:1" ]
    [ "$(shown top-k)" = "7 # $PWD/xdg/quill/config:2" ]
}

@test "without an absolute XDG_CONFIG_HOME ~/.config is used, and without HOME no file" {
    config 'temp = 0.25'
    echo 'temp = 0.125' >home/.config/quill/config
    [ "$(XDG_CONFIG_HOME=xdg shown temp)" = "0.125 # $HOME/.config/quill/config:1" ]
    unset XDG_CONFIG_HOME
    [ "$(shown temp)" = "0.125 # $HOME/.config/quill/config:1" ]
    [ "$(env -u HOME "$QUILL" --show-config | grep -c '^temp = 0.8 ')" -eq 1 ]
    env -i "$QUILL" --show-config | grep -q '^temp = 0.8 '
}

@test "a preset is a section, which overrides the beginning of the file" {
    config "model = $TINY/base.gguf
temp = 0.5
[short]
predict = 0
prompt = Once upon
echo = on
[other]
temp = 2"
    "$QUILL" --preset short </dev/null >out
    [ "$(cat out)" = "Once upon" ]
    [ "$(echo in | "$QUILL" --preset short and more)" = $'Once upon\n\nand more\n\nin' ]
    [ "$(shown temp --preset other)" = "2 # $PWD/xdg/quill/config:8" ]
    [ "$(shown temp --preset short)" = "0.5 # $PWD/xdg/quill/config:2" ]
    [ "$("$QUILL" --preset short --show-config | grep -c '^# prompt = Once upon')" -eq 1 ]
    run "$QUILL" --preset longer hi
    [ "$status" -eq 2 ]
    [[ "$output" == *"[longer]"*"there is [short], [other]" ]]
    [ "$(code "$QUILL" --preset short --no-config hi)" -eq 2 ]
    rm xdg/quill/config
    run "$QUILL" --preset short hi
    [ "$status" -eq 2 ]
    [[ "$output" == *"xdg/quill/config expected, found none" ]]
}

@test "each mode uses the options that it has and ignores others" {
    config "model = $TINY/base.gguf
system-prompt = Be brief
n-gen = 3
repetitions = 1
n-prompt = 4
predict = 2
context-shift = on"
    [ "$("$QUILL" tokenize --ids hello </dev/null)" = "$("$QUILL" tokenize --no-config -m "$TINY/base.gguf" --ids hello </dev/null)" ]
    "$QUILL" bench -q -o csv | cut -d, -f 7 | xargs >tests
    [ "$(cat tests)" = "test pp4 tg3" ]
    "$QUILL" bench -q -o csv --shape dim=64,layers=1,heads=2,ffn=64,vocab=300 >/dev/null # instead of the file's model
    echo '{"prompt":"a","ignore_eos":true}' | "$QUILL" batch -m "$TINY/chat.gguf" | grep -q '"completion_tokens":2'
    "$QUILL" -m "$TINY/chat.gguf" --dump-prompt hi 2>&1 >/dev/null </dev/null | grep -q 'Be brief'
    [ "$(code "$QUILL" kv info "$TINY/base.gguf")" -eq 3 ]
}

@test "an option of the file whose partner is missing is ignored, and one without a default has none" {
    for lone in 'blend = 0.2' 'chunk-split = x' 'blend-error = on' 'length-penalty = 2' 'early-stopping = never' 'draft-max = 3' 'draft-min = 3' \
        'draft-p-min = 0.5' 'logprobs = 3'; do
        config "$lone"
        "$QUILL" -m "$TINY/chat.gguf" -n 1 hi </dev/null
        printf 'hi\n' | "$QUILL" -m "$TINY/chat.gguf" -i -n 1
    done
    echo '{"prompt":"a"}' >job
    config $'draft-min = 20\ndraft-p-min = 0.5'
    "$QUILL" batch -m "$TINY/chat.gguf" -n 1 job
    config $'replay = on\nprompt-lines = none\nsave = none.gguf'
    "$QUILL" bench -q -m "$TINY/chat.gguf" -p 4 -n 2 -r 1
    for option in beams kv-dir ubatch-size think logprobs; do
        config "$option = default"
        run "$QUILL" -m "$TINY/chat.gguf" -n 1 hi </dev/null
        [ "$status" -eq 2 ]
        [[ "$output" == *"config:1: $option: a value expected"* ]]
    done
    config 'file = notes'
    run "$QUILL" -m "$TINY/chat.gguf" -n 1 hi </dev/null
    [ "$status" -eq 2 ]
    [[ "$output" == *"file: a prompt is allowed only in a section"* ]]
}

@test "a word that names the input wins over the file's input" {
    echo '{"prompt":"a"}' >job
    config $'shape = 1.1b\ntokens = 1,2,3\n[jobs]\nfile = none'
    "$QUILL" bench -q -m "$TINY/chat.gguf" -p 4 -n 2 -r 1
    "$QUILL" logits -m "$TINY/chat.gguf" --tokens 4 >one
    "$QUILL" logits -m "$TINY/chat.gguf" --no-bos a >text
    [ "$(wc -c <one)" -eq "$(wc -c <text)" ]
    "$QUILL" batch -m "$TINY/chat.gguf" --preset jobs -n 1 job | grep -q '"line":1,"text"'
}

@test "--show-config says which values a line of the file cannot hold" {
    config 'system-prompt = "say "hi" now"   # comment'
    "$QUILL" --show-config | grep -q '^system-prompt = say "hi" now  *# '
    "$QUILL" -sys 'say "hi" # now' --show-config | grep -q '^# system-prompt has a " before a #; it works only on the command line'
}

@test "a flag that excludes what the file says wins" {
    config "model = $TINY/chat.gguf
system-prompt = Be brief
verbose = on
device = cuda"
    "$QUILL" --raw -q -ngl 0 -n 0 --dump-prompt hi 2>errors </dev/null
    [ "$(cat errors)" = hi ]
    printf 'From a file' >sys
    "$QUILL" -sysf sys -q --device cpu -n 0 --dump-prompt hi 2>&1 </dev/null | grep -q 'From a file'
    # forms, searches and sampling
    runs() { # runs CONFIG FLAGS...: quill answers
        config "model = $TINY/chat.gguf"$'\n'"$1"
        run "$QUILL" -n 2 --seed 1 "${@:2}" hi </dev/null
        echo "$output"
        [ "$status" -eq 0 ] || [ "$status" -eq 7 ] # 7: the form is not complete yet
    }
    runs 'regex = [a-z]+' --json-object
    runs 'json-schema = {}' --regex '[a-z]{2}'
    runs "tools = $PWD/none.json" --choice yes,no
    runs $'temp = 0.3\ntop-k = 5\nbest-of = 3' --beams 2
    runs 'greedy = on' --best-of 2
    runs 'temp = 0' --best-of 2
    runs 'best-of = 2' --temp 0
    runs $'beams = 2\nlength-penalty = 2' --top-p 0.5
    runs $'beams = 2\nlength-penalty = 2' --best-of 2
    runs $'beams = 2\nlength-penalty = 2' -i
    config "model = $TINY/chat.gguf"$'\ntemp = 0.5\nregex = a'
    [ "$(shown temp --best-of 2)" = "0.5 # $PWD/xdg/quill/config:2" ]      # draws: no conflict
    [ "$(shown regex --json-object=off)" = "a # $PWD/xdg/quill/config:3" ] # what is off excludes nothing
    [ "$(shown regex --choice a,b)" = "" ]
    config 'jsonl = on'
    [ "$("$QUILL" -m "$TINY/chat.gguf" --json -n 2 --ignore-eos hi </dev/null | wc -l)" -eq 1 ]
    config 'json = on'
    [ "$("$QUILL" -m "$TINY/chat.gguf" --jsonl -n 2 --ignore-eos hi </dev/null | wc -l)" -eq 3 ]
    # types of K and V that seal slots, beside what needs each slot
    printf 'Tom went to the mill.\n' >letter.txt
    runs 'evict = sinks,window=60' -ctk q8_0
    runs 'evict = sinks,window=60' --chunk letter.txt
    runs 'chunk = letter.txt' --evict sinks,window=60
    runs "chunk = $PWD/letter.txt" -ctv kivi2
    for wants in '--chunk letter.txt' '--evict sinks,window=60'; do runs $'cache-type-k = q8_0\ncache-type-v = q4_0' $wants; done
    config $'cache-type-k = bf16\ncache-type-v = q8_0\nevict = shift'
    [ "$(shown cache-type-k --evict shift)" = "bf16 # $PWD/xdg/quill/config:1" ] # dense: no conflict
    [ "$(shown cache-type-v --evict shift)" = "auto # the default" ]
    [ "$(shown evict -ctk f32)" = "shift # $PWD/xdg/quill/config:3" ]
    [ "$(shown evict -ctk q8_0)" = "" ]
    # two of the same strength are an error still
    [ "$(code "$QUILL" --regex a --choice b hi)" -eq 2 ]
    config "raw = on
chat = on"
    [ "$(code "$QUILL" -m "$TINY/chat.gguf" hi)" -eq 2 ]
}

@test "a file that the configuration names and that is missing is an error with its line" {
    for option in tools json-schema-file grammar-file chat-template-file system-prompt-file; do
        config "model = $TINY/chat.gguf
$option = missing"
        run -6 "$QUILL" -n 1 hi
        [[ "$output" == "quill: -"*": missing: cannot open: No such file or directory; -"*" is from $PWD/xdg/quill/config:2" ]]
    done
}

@test "an option that reads stdin wins over the file's no-stdin" {
    config "model = $TINY/chat.gguf
no-stdin = on"
    printf 'hi' >text
    "$QUILL" -n 0 --dump-prompt -f - <text 2>errors
    grep -q '^hi' errors || grep -q 'hi<' errors
    "$QUILL" -n 1 --chunk - hi <text
    [ "$(code "$QUILL" --no-stdin -n 1 -f -)" -eq 2 ]
    [ "$(code "$QUILL" --no-stdin -n 1 --chunk - hi)" -eq 2 ]
}

@test "an empty value turns off what the file sets" {
    config "model = $TINY/chat.gguf
evict = sinks,window=60
speculate = ngram
chat-template = nonesuch
tools = $PWD/nonesuch.json
stop = a
stop = b
beams = 4
logit-bias = 5-inf"
    off=(--evict '' --speculate= --chat-template '' --tools '' --stop '' --beams '' --logit-bias '')
    "$QUILL" "${off[@]}" -n 3 hi </dev/null
    "$QUILL" "${off[@]}" --show-config | sed -n 's/ *#.*the command line$//p' >shown
    for name in evict speculate chat-template tools stop beams logit-bias; do grep -qx "$name = \"\"" shown; done
    cp shown xdg/quill/config # a valid file
    "$QUILL" -m "$TINY/chat.gguf" -n 3 hi </dev/null
    config "model = $TINY/chat.gguf
stop = a
kv-dir = everywhere
[kept]
stop = \"\"
stop = c
[none]
kv-dir = \"\""
    [ "$(shown stop --preset kept)" = "c # $PWD/xdg/quill/config:6" ]
    [ "$(shown kv-dir --preset none)" = "\"\" # $PWD/xdg/quill/config:8" ]
    "$QUILL" --preset none -n 1 hi </dev/null
    "$QUILL" --kv-dir '' -n 1 hi </dev/null
    [ ! -e everywhere ]
    # where an empty value would be a mistake, it stays an error
    for wrong in '--json-schema' '--chunk' '--load' '--model' '--temp'; do [ "$(code "$QUILL" "$wrong" '' -n 1 hi)" -ne 0 ]; done
}

@test "a wrong line is an error that names the file and the line" {
    export QUILL_MODEL="$TINY/base.gguf"
    here="$PWD/xdg/quill/config"
    says() { # says TEXT LINE MESSAGE
        config "$1"
        run "$QUILL" -n 1 hi </dev/null
        echo "$output"
        [ "$status" -eq 2 ]
        [[ "$output" == "quill: $here:$2: "*"$3"* ]]
    }
    says $'\n# c\ntemp = warm' 3 'temp: a number from 0 to 1000'
    says 'tmp = 1' 1 'did you mean temp?'
    says '--temp = 1' 1 'an option without its dashes'
    says 'n = 1' 1 'long name of an option expected; did you mean predict?'
    says 'q = on' 1 'did you mean quiet?'
    says 'temp' 1 'option = value expected'
    says 'stop = ###' 1 'a value expected'
    says 'greedy = perhaps' 1 'on or off'
    says 'help = on' 1 'command line'
    says 'preset = a' 1 'command line'
    says 'prompt = a' 1 'section'
    says '[a' 1 '[name] expected'
    says 'system-prompt = "Be # brief" x' 1 'system-prompt: a " at the end of the value'
    says $'\nsystem-prompt = "unterminated # y' 2 'system-prompt: a " at the end'
    says 'stop = "' 1 'stop: a " at the end'
    says '[]' 1 'a name expected'
    says $'[unused]\nbogus = 1' 2 'bogus'
    # help and version do without
    "$QUILL" --help | grep -q -- --show-config
    rm xdg/quill/config
    mkdir xdg/quill/config
    [ "$(code "$QUILL" -n 1 hi)" -eq 6 ]
}

@test "an error about a model from the configuration or environment says where its name is from" {
    run env QUILL_MODEL=/nope "$QUILL" hi </dev/null
    [ "$status" -eq 3 ]
    [[ "$output" == "quill: QUILL_MODEL: /nope: cannot open: "* ]]
    config "model = /nope"
    run "$QUILL" hi </dev/null
    [ "$status" -eq 3 ]
    [[ "$output" == "quill: $PWD/xdg/quill/config:1: /nope: cannot open: "* ]]
    run "$QUILL" -m /nope hi </dev/null
    [[ "$output" == "quill: /nope: cannot open: "* ]]
}
