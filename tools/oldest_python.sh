#!/usr/bin/env bash
# The oldest Python that is supported and found here, without compiled loops: installs the package into
# an empty environment, starts a node and runs a fast part of the suite.
#   tools/oldest_python.sh                              looks for it
#   PYTHON=/usr/bin/python3.12 tools/oldest_python.sh   the same with another one
#   tools/oldest_python.sh --smoke                      imports and starts it only: tools/other_pythons.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# The system's own come first: distributions keep the first releases of a version for years.
oldest() {
    local minor found
    for minor in 11 12 13 14; do
        for found in "/usr/bin/python3.$minor" "$(command -v "python3.$minor" || true)"; do
            if [ -x "$found" ] && "$found" -c 'import ensurepip' 2>/dev/null; then
                echo "$found"
                return
            fi
        done
    done
    echo "no Python from 3.11 on with venv was found" >&2
    return 1
}

smoke=no
case "${1:-}" in
"") ;;
--smoke) smoke=yes ;;
*) echo "unknown option $1" >&2; exit 2 ;;
esac
python=${PYTHON:-$(oldest)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "== $("$python" -V) at $python, without compiled loops"

# Not the checkout itself: its compiled loops may fit this Python.
git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
    tar --create --null --files-from=- | tar --extract --directory "$work"
cd "$work"
"$python" -m venv .venv
pinned() { grep -E "^($1)==" requirements/dev.txt; }
suite='|confluent-kafka|hypothesis|psutil|pytest|pytest-xdist'
[ "$smoke" = no ] || suite=
mapfile -t needed < <(pinned "setuptools|wheel$suite")
.venv/bin/python -m pip install --quiet "${needed[@]}"
MOLDAU_PURE_PYTHON=1 .venv/bin/python -m pip install --quiet --no-build-isolation .
.venv/bin/moldau --version | tee version
grep -q "Python twins" version

.venv/bin/moldau demo --commands --once
if [ "$smoke" = yes ]; then
    # A newer Python may have deprecated what we use.
    MOLDAU_PURE_PYTHON=1 .venv/bin/python -P -W error -c \
        'from moldau import *; from moldau.aio import *; from moldau.testing import *; import moldau.cli.app'
    exit
fi
.venv/bin/python -m pytest --quiet --numprocesses 2 tests/net tests/storage tests/cli/test_command.py \
    tests/system/node/test_samples_served.py tests/system/node/test_signals.py tests/system/node/test_start_and_stop.py
