#!/bin/sh
# Installs missing packages that quill needs: `deps.sh build` for the binary only, `deps.sh` for the tests too. It uses
# apt-get on Debian and Ubuntu, as root or with sudo; on other systems it lists what is missing.
set -eu

what=${1:-test}
missing=

need() { # need PACKAGE CHECK...: CHECK is a command that succeeds if the package is installed
  package=$1
  shift
  "$@" >/dev/null 2>&1 || missing="$missing $package"
}
has_header() { # has_header FILE: succeeds if the C compiler finds the header
  echo "#include <$1>" | "${CC:-cc}" -E -include stdint.h -x c - >/dev/null 2>&1
}
has_header_of_cmocka() {
  printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' |
    "${CC:-cc}" -E -x c - >/dev/null 2>&1
}
has_header_of_pcre2() {
  printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n' | "${CC:-cc}" -E -x c - >/dev/null 2>&1
}
has_libc() { has_header stdio.h; }
has_jansson() { has_header jansson.h; }
has_xxhash() { has_header xxhash.h; }
has_libedit() { has_header histedit.h; }
has_utf8proc() { has_header utf8proc.h; }
has_libmd() { has_header sha2.h; }

need gcc command -v "${CC:-cc}"
need libc6-dev has_libc
need make command -v make
need libpcre2-dev has_header_of_pcre2
need libjansson-dev has_jansson
need libxxhash-dev has_xxhash
need libedit-dev has_libedit
need libutf8proc-dev has_utf8proc
need libmd-dev has_libmd
if [ "$what" = test ]; then
  need g++ command -v "${CXX:-g++}" # the GPU's kernels, run on the CPU
  need libcmocka-dev has_header_of_cmocka
  need bats command -v bats
  need python3 command -v python3 # drives terminals; checks the corpus
  need python3-jsonschema python3 -c 'import jsonschema' # answers against their schemas
fi

if [ -z "$missing" ]; then
  echo "deps: nothing is missing"
  exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "deps: missing (Debian package names):$missing" >&2
  echo "deps: this is not Debian or Ubuntu; install the same libraries with your package manager:" >&2
  echo "deps: a C compiler, make, PCRE2 (8-bit), jansson, xxHash (0.8 or later), libedit, utf8proc, libmd; for the tests a C++ compiler, cmocka, bats and Python 3" >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null 2>&1; then
  as_root=sudo
else
  echo "deps: missing:$missing" >&2
  echo "deps: run as root: apt-get install$missing" >&2
  exit 1
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -q
# shellcheck disable=SC2086
$as_root apt-get install -y -q --no-install-recommends $missing
