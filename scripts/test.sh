#!/usr/bin/env bash
# Unit tests, then system tests; both run whatever the first says. Arguments go to pytest.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${TENSORD_PY311:-$PWD/build/venv/bin/python}

ctest --test-dir build --output-on-failure -j"$(nproc)"
units=$?
"$python" -m pytest tests -q -ra "$@"
systems=$?
exit $((units || systems))
