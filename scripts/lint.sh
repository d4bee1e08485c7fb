#!/usr/bin/env bash
# clang-format, the house rules (scripts/house.py), clang-tidy. TIDY=0 leaves the slow last one out.
set -uo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc) failed=0
mapfile -t sources < <(git ls-files 'src/**.c' 'src/**.h' 'bench/*.c')

printf '%s\n' "${sources[@]}" | xargs -P"$jobs" -n 20 clang-format --dry-run -Werror || { echo "lint: run make format"; failed=1; }
python3 scripts/house.py || failed=1
for script in scripts/*.sh .ci/run; do bash -n "$script" || failed=1; done

if [ "${TIDY:-1}" != 0 ]; then
  cmake -S . -B build/tidy -G Ninja -DCMAKE_C_COMPILER=clang -DTD_TESTS=OFF >/dev/null || exit 1
  ninja -C build/tidy -j"$jobs" td_messages >/dev/null || exit 1 # the generated headers
  git ls-files 'src/**.c' | grep -v -e '_test\.c$' -e '_fuzz\.c$' -e /testing -e /loops/ |
    xargs -P"$jobs" -n 4 clang-tidy -p build/tidy --quiet --warnings-as-errors='*' 2>build/tidy/log ||
    { echo "lint: clang-tidy has findings"; failed=1; }
fi
((failed == 0)) && echo "lint: clean"
exit "$failed"
