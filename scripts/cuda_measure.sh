#!/usr/bin/env bash
# Check and time everything on this machine's CUDA device, within a time limit.
#
#   scripts/cuda_measure.sh [--minutes 8] [--out DIR]
#
# Runs `pytest -m cuda`, times every schedule family fused and unfused by device events, compares whole
# models with their CPU build, and collects records for the cost model. DIR (default build/cuda-measured)
# gets summary.json, tests.txt, tests.xml, records.jsonl and records.txt; what is done is kept when the
# time runs out. Exit code 0: all right, 1: something is wrong, 3: no CUDA device answers, 4: what was
# done is right, but the time ran out.
#
# In an unpacked bundle (scripts/gpu_bundle.sh) it uses the bundle's packages and its built libraries.
# In a clone it uses .venv, and libraries that `python -m scripts.cuda.prebuild` has built.
set -euo pipefail
if [ "${1:-}" = --help ] || [ "${1:-}" = -h ]; then
  sed -n '2,/^set -/{/^set -/!p}' "$0" | sed 's/^# \{0,1\}//'
  exit 0
fi

here=$PWD
cd "$(dirname "$0")/.."
root=$PWD

is_312() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; }
python=''
if [ -d "$root/../site/tvm" ]; then
  for name in ${PYTHON:-} python3.12 python3 python; do
    if is_312 "$name"; then python=$name; break; fi
  done
  [ -n "$python" ] || { echo "cuda_measure: needs Python 3.12; name one with PYTHON=..." >&2; exit 1; }
  site=$(cd "$root/../site" && pwd)
  # Nothing of the host's own Python packages may come before or after these.
  export PYTHONPATH=$root:$site PYTHONNOUSERSITE=1
  export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTEST_PLUGINS=pytest_timeout
  export TVMPASS_CACHE_DIR=${TVMPASS_CACHE_DIR:-$(dirname "$site")/cache}
else
  for name in ${PYTHON:-} .venv/bin/python python3; do
    if "$name" -c 'import tvm' 2>/dev/null; then python=$name; break; fi
  done
  [ -n "$python" ] || { echo "cuda_measure: no Python with TVM; make .venv/.installed-test" >&2; exit 1; }
  export PYTHONPATH=$root
fi

# A folder is meant from where the command was given.
arguments=("$@")
for ((i = 0; i < ${#arguments[@]}; i++)); do
  if [ "${arguments[i]}" = --out ] && [ $((i + 1)) -lt ${#arguments[@]} ]; then
    case ${arguments[i + 1]} in /*) ;; *) arguments[i + 1]=$here/${arguments[i + 1]} ;; esac
  fi
done
exec "$python" -m scripts.cuda.measure "${arguments[@]+"${arguments[@]}"}"
