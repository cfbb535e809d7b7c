#!/bin/sh
# run_test.sh NAME LOG COMMAND...: runs one test. Writes its output to LOG, and prints a line with the result; if the test
# failed, also the whole log. LOG.result keeps the line for scripts/test.sh. QUILL_TEST_TMP, which is emptied first, is
# the test's scratch directory and the place of quill's user files (cache, state).
set -eu
name=$1 log=$2
shift 2
mkdir -p "$(dirname "$log")"
rm -f "$log.result"
if [ -n "${QUILL_TEST_TMP:-}" ]; then
  rm -rf "$QUILL_TEST_TMP"
  mkdir -p "$QUILL_TEST_TMP"
  export XDG_CONFIG_HOME=/dev/null XDG_CACHE_HOME="$QUILL_TEST_TMP/cache" XDG_STATE_HOME="$QUILL_TEST_TMP/state"
fi
start=$(date +%s)
code=0
"$@" >"$log" 2>&1 </dev/null || code=$?
seconds=$(($(date +%s) - start))
# cmocka's "[  SKIPPED ] name" and bats's "ok 3 name # skip why"
skipped=$(grep -cE '^\[  SKIPPED \] [^0-9]|^ok .*# skip' "$log" || true)
if [ "$code" = 0 ]; then
  echo "ok      $name, $seconds s$([ "$skipped" = 0 ] || echo ", $skipped skipped")" | tee "$log.result"
else
  cat "$log"
  echo "FAILED  $name (exit code $code), $seconds s; its output is in $log" | tee "$log.result"
  exit 1
fi
