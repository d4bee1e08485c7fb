#!/usr/bin/env bash
# Installs the Debian packages that are missing (Debian 12; versions: docs/dependencies.md).
set -euo pipefail

packages=(
  ca-certificates gcc make cmake ninja-build pkg-config git
  clang clang-tidy clang-format libclang-rt-14-dev
  libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler libdnnl-dev libopenblas-pthread-dev
  libcmocka-dev libjansson-dev zlib1g-dev libisal-dev libpcre2-dev libpng-dev
  python3 python3-venv
)

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
((${#missing[@]})) || exit 0

sudo=()
if ((EUID != 0)); then
  command -v sudo >/dev/null || { echo "deps: not root and no sudo; install: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
for try in 1 2 3; do # mirrors fail now and then
  if "${sudo[@]}" apt-get update -qq && "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; then
    exit 0
  fi
  echo "deps: try $try failed" >&2
  sleep $((try * 10))
done
exit 1
