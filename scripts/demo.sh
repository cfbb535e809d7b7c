#!/bin/sh
# Runs a demo on a bare Debian or Ubuntu with git and a network: installs missing packages, builds, and lets the built-in
# model continue "Once upon a time" (`make demo` shows the command and runs it).
set -eu
cd "$(dirname "$0")/.."
scripts/deps.sh build
jobs=$(nproc 2>/dev/null || echo 2)
make -j"$jobs" quill
exec make --no-print-directory demo
