#!/bin/sh
# Unpacks the 64-bit ARM libraries that quill and its tests link into a directory, for `make arm64 ARM64_ROOT=DIR`. It
# does not change the system. For Debian and Ubuntu; downloads from apt's configured sources.
#
#   scripts/arm64_root.sh DIR
set -eu

if [ $# -ne 1 ]; then
  sed -n '2,5s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
for tool in apt-get dpkg aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v "$tool" >/dev/null && continue
  echo "arm64_root.sh: $tool: expected, not found; apt-get install gcc-aarch64-linux-gnu qemu-user" >&2
  exit 1
done

mkdir -p "$1/apt/lists/partial" "$1/apt/archives/partial" "$1/apt/debs"
root=$(cd "$1" && pwd)
: >"$root/apt/status"
# Runs apt with a state directory of its own, configured for arm64.
arm_apt() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$root/apt" \
    -o Dir::State::status="$root/apt/status" -o Dir::Cache="$root/apt" -o APT::Sandbox::User=root "$@"
}
arm_apt update
cd "$root/apt/debs"
arm_apt download libpcre2-dev libjansson-dev libxxhash-dev libutf8proc-dev libedit-dev libbsd-dev libmd-dev libncurses-dev \
  libcmocka-dev libcmocka0
for package in *.deb; do dpkg -x "$package" "$root"; done
rm -r "$root/apt"
echo "arm64_root.sh: now make arm64 ARM64_ROOT=$root"
