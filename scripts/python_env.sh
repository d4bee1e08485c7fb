#!/usr/bin/env bash
# Python environments with TensorFlow clients, under build/:
#   venv     TensorFlow 2.15.1 (Python 3.9 to 3.11): runs the tests, the demo and the benchmarks
#   venv37   TensorFlow 1.15.5, where a Python 3.7 is found
#   venv312  the newest TensorFlow, where a Python 3.12 or 3.13 is found
# TENSORD_PY311, TENSORD_PY37 and TENSORD_PY312 name existing interpreters with these packages to use instead.
set -euo pipefail
cd "$(dirname "$0")/.."

main_packages=(tensorflow-cpu==2.15.1 'numpy<2' scikit-learn pytest grpcio)
old_packages=(tensorflow==1.15.5 'protobuf<3.21' 'numpy<1.19' scikit-learn)
newest_packages=(tensorflow-cpu==2.21.0 scikit-learn)

# The first of the commands that is a working Python; pyenv's shims may be there and not work.
find_python() {
  local name candidate
  for name in "$@"; do
    for candidate in /usr/bin/python$name "$(command -v python$name || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/$name*/bin/python; do
      if [ -x "$candidate" ] && "$candidate" -c "import sys, venv, ensurepip, ctypes, ssl; assert '%d.%d' % sys.version_info[:2] == '$name'" 2>/dev/null; then
        echo "$candidate"
        return
      fi
    done
  done
}

# make_env FOLDER PYTHON PACKAGE...: again only when the packages have changed
make_env() {
  local folder=build/$1 python=$2 wanted
  shift 2
  wanted="$("$python" -V 2>&1) $*"
  if [ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ]; then return; fi
  echo "python: $folder: $*"
  rm -rf "$folder"
  "$python" -m venv "$folder"
  for try in 1 2 3; do
    if "$folder/bin/python" -m pip install -q --disable-pip-version-check --retries 5 --timeout 60 "$@"; then
      echo "$wanted" >"$folder/installed"
      return
    fi
    echo "python: try $try failed" >&2
    sleep $((try * 10))
  done
  return 1
}

mkdir -p build
if [ -z "${TENSORD_PY311:-}" ]; then
  python=$(find_python 3.11 3.10 3.9)
  [ -n "$python" ] || { echo "python: no Python 3.9 to 3.11 found: TensorFlow 2.15.1 needs one" >&2; exit 1; }
  make_env venv "$python" "${main_packages[@]}"
fi
# The other clients are extra: without them their tests are reported as skipped.
if [ -z "${TENSORD_PY37:-}" ]; then
  python=$(find_python 3.7)
  [ -z "$python" ] || make_env venv37 "$python" "${old_packages[@]}" || echo "python: TensorFlow 1.15.5 cannot be installed here" >&2
fi
if [ -z "${TENSORD_PY312:-}" ]; then
  python=$(find_python 3.12 3.13)
  [ -z "$python" ] || make_env venv312 "$python" "${newest_packages[@]}" || echo "python: the newest TensorFlow cannot be installed here" >&2
fi
