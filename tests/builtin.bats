#!/usr/bin/env bats
# The model in the binary says what its card promises: a small part of scripts/eval_model.py's measurement, with room
# for what a small sample swings.

load rig/helpers

setup() {
    enter
    needs python3
    needs_builtin
}

# share TITLE LEAST: the percentage in the row of that title is at least so much
share() {
    grep -F "| $1" table | grep -oE '[0-9]+\.[0-9]+ %' | head -1 | awk -v least="$2" '{ exit !($1 >= least) }'
}

# told OPENING LEAST: so many of 20 seeds tell a story
told() {
    grep -F "| \`$1\` |" table | awk -F'|' -v least="$2" '{ exit !($4 >= least) }'
}

@test "the built-in model answers held-out questions, and its grammar accepts its stories" {
    python3 "$TOP/scripts/eval_model.py" --quill "$QUILL" --only questions,openings,stories \
        --questions 60 --stories 12 --training-bytes 1M >table
    cat table
    share "one-hop" 65
    share "two-hop" 60
    share '"I don' 75
    share "arithmetic" 93
    share "sentences that the grammar accepts" 90
    told "Once upon a time" 18
    told "Tell me a story" 18
}

@test "a chat with the built-in model is saved under its name and can be continued" {
    printf 'hi\n' | "$QUILL" -m builtin -i --autosave >/dev/null
    [[ "$(ls "$XDG_STATE_HOME/quill/conversations")" =~ ^[0-9]{8}-[0-9]{6}-[a-z-]+\.json$ ]]
    "$QUILL" -m builtin --continue --dump-prompt -n 1 "And now?" </dev/null 2>&1 >/dev/null | grep -q '^hi<|im_end|>'
}
