#!/bin/sh
# Tests quill on a bare Debian or Ubuntu with git and a network: installs missing packages, builds, and runs all tests, as
# many in parallel as there are processors. The last lines say what was skipped and why, and which tests failed; then the
# exit code is 1. QUILL_TEST_DATA=DIR adds tests with outside models, golden logits and vocabularies.
set -eu
cd "$(dirname "$0")/.."
scripts/deps.sh test
jobs=$(nproc 2>/dev/null || echo 2)
logs="build/release/tests build/fuzz/tests"
make -j"$jobs" quill test-build
for folder in $logs; do rm -f "$folder"/*.log "$folder"/*.log.result; done
code=0
make -j"$jobs" -k test || code=1

echo
# cmocka tests print "skipped: why" before their result, bats "# skip why" after it. Prints each reason with its number of
# tests.
for folder in $logs; do cat "$folder"/*.log 2>/dev/null || true; done |
  sed -nE 's/^skipped: //p; s/^ok .*# skip //p' | sed 's/ it would have used .*//' | sort | uniq -c |
  while read -r n why; do echo "skipped $n: $why"; done
for folder in $logs; do cat "$folder"/*.log.result 2>/dev/null || true; done | grep '^FAILED' || true
if [ "$code" = 0 ]; then echo "all tests passed"; else echo "not all tests passed"; fi
exit "$code"
