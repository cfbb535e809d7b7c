#!/bin/sh
# run_test.sh NAME LOG COMMAND...: one test with its output in LOG; a line on stdout, and the log where it failed.
set -eu
name=$1 log=$2
shift 2
mkdir -p "$(dirname "$log")"
if [ -n "${QUILL_TEST_TMP:-}" ]; then
  rm -rf "$QUILL_TEST_TMP"
  mkdir -p "$QUILL_TEST_TMP"
fi
start=$(date +%s)
if "$@" >"$log" 2>&1 </dev/null; then
  # cmocka's "[  SKIPPED ] name" and bats's "ok 3 name # skip why"
  skipped=$(grep -cE '^\[  SKIPPED \] [^0-9]|^ok .*# skip' "$log" || true)
  echo "ok      $name, $(($(date +%s) - start)) s$([ "$skipped" = 0 ] || echo ", $skipped skipped")"
else
  code=$?
  cat "$log"
  echo "FAILED  $name (exit code $code)"
  exit 1
fi
