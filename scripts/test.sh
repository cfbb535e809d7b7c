#!/bin/sh
# From a bare Debian or Ubuntu with git and a network to a passed test run: installs what is missing, builds, tests.
# QUILL_TEST_DATA=DIR adds the tests over outside models, golden logits and vocabularies.
set -eu
cd "$(dirname "$0")/.."
scripts/deps.sh test
jobs=$(nproc 2>/dev/null || echo 2)
make -j"$jobs" quill test-build
exec make test
