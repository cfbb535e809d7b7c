#!/usr/bin/env bats
# The model in the binary says what its card promises: a small part of scripts/eval_model.py's measurement, with room
# for what a small sample swings.

setup() {
  QUILL="${QUILL:-$BATS_TEST_DIRNAME/../quill}"
  command -v python3 >/dev/null || skip "python3 is not here"
  "$QUILL" --version | grep -q "built into the binary" || skip "built with NO_MODEL=1"
  export PYTHONDONTWRITEBYTECODE=1
}

# share TITLE LEAST: the percentage in the row of that title is at least so much
share() {
  grep -F "| $1" table | grep -oE '[0-9]+\.[0-9]+ %' | head -1 | awk -v least="$2" '{ exit !($1 >= least) }'
}

@test "the built-in model answers held-out questions, and its stories are its grammar's" {
  cd "$BATS_TEST_TMPDIR" || return 1
  python3 "$BATS_TEST_DIRNAME/../scripts/eval_model.py" --quill "$QUILL" --questions 60 --stories 12 --training-bytes 1M >table
  cat table
  share "one-hop" 65
  share "two-hop" 60
  share '"I don' 75
  share "arithmetic" 93
  share "sentences that the grammar accepts" 90
}

@test "a chat with the built-in model is saved under its name, and goes on" {
  export XDG_STATE_HOME="$BATS_TEST_TMPDIR/state"
  printf 'hi\n' | "$QUILL" -m builtin -i --autosave >/dev/null
  [[ "$(ls "$XDG_STATE_HOME/quill/conversations")" =~ ^[0-9]{8}-[0-9]{6}-[a-z-]+\.json$ ]]
  "$QUILL" -m builtin --continue --dump-prompt -n 1 "And now?" </dev/null 2>&1 >/dev/null | grep -q '^hi<|im_end|>'
}
