#!/usr/bin/env bash
# Every Python from 3.12 on that is found here, of the system or of pyenv, with venv: installs the package without
# compiled loops, imports it and starts a node. The version that `make test` runs all suites with is left out.
#   tools/other_pythons.sh             looks for them
#   tools/other_pythons.sh PYTHON...   these
set -euo pipefail
cd "$(dirname "$0")/.."

found() {
    local minor each tested=
    [ ! -x .venv/bin/python ] || tested=$(.venv/bin/python -c 'import sys; print(sys.version_info.minor)')
    for minor in 12 13 14; do
        [ "$minor" != "$tested" ] || continue
        for each in "/usr/bin/python3.$minor" "$(command -v "python3.$minor" || true)" \
            "${PYENV_ROOT:-$HOME/.pyenv}/versions/3.$minor".*/bin/python3; do
            # Shims of pyenv are there for Pythons that are not chosen, too.
            if [ -x "$each" ] && "$each" -c 'import ensurepip' 2>/dev/null; then
                echo "$each"
                break
            fi
        done
    done
}

if [ $# -eq 0 ]; then
    mapfile -t pythons < <(found)
else
    pythons=("$@")
fi
[ "${#pythons[@]}" -gt 0 ] || echo "== no other Python from 3.12 on with venv was found"
for python in "${pythons[@]}"; do
    PYTHON=$python tools/oldest_python.sh --smoke
done
