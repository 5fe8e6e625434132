#!/usr/bin/env bash
# Pack what a GPU host without registry access needs into parts of a chosen size.
#
#   scripts/gpu_bundle.sh [--out DIR] [--part-size MIB] [--models DIR] [--target T] [--batches N] [--no-prebuilt]
#
#   --out DIR        where the parts go (default build/gpu-bundle)
#   --part-size MIB  largest part (default 60)
#   --models DIR     folder with the OCR models, to be built and taken along (default: the example)
#   --target T       what the libraries are built for (default cuda:sm_80,sm_90)
#   --batches N      batches of kernels to be timed for the cost model, for the last architecture (default 6)
#   --no-prebuilt    take no built libraries along: the host then needs nvcc and g++
#
# Needs make, pip with a registry, g++, git and xz here. The host needs Python 3.12, tar, xz and a driver:
# TVM and the other packages come unpacked from their wheels, kernels come compiled. Where the host has
# nvcc and g++, the tests also build there. Copy DIR there and run: bash unpack.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "gpu_bundle: $*" >&2; exit 1; }
say() { printf '[%5d s] %s\n' "$SECONDS" "$*" >&2; }

out=build/gpu-bundle part_mib=60 models='' target=cuda:sm_80,sm_90 batches=6 prebuilt=yes
while [ $# -gt 0 ]; do
  case $1 in
    --no-prebuilt) prebuilt=no; shift; continue ;;
    -h|--help) sed -n '2,/^set -/{/^set -/!p}' "$0" | sed 's/^# \{0,1\}//'; exit 0 ;;
    --out|--part-size|--models|--target|--batches) [ $# -gt 1 ] || fail "$1 needs a value" ;;
    *) fail "unknown option $1 (see --help)" ;;
  esac
  case $1 in
    --out) out=$2 ;;
    --part-size) part_mib=$2 ;;
    --models) models=$2 ;;
    --target) target=$2 ;;
    --batches) batches=$2 ;;
  esac
  shift 2
done
[[ $part_mib =~ ^[1-9][0-9]*$ ]] || fail "--part-size $part_mib: expected a number of MiB"
[[ $batches =~ ^[0-9]+$ ]] || fail "--batches $batches: expected a number"
[ -z "$models" ] || [ -d "$models" ] || fail "--models $models: no such folder"
for tool in make git xz tar split sha256sum g++; do
  command -v $tool >/dev/null || fail "$tool is not installed"
done

work=build/gpu-bundle.work
cache=build/gpu-bundle.cache
rm -rf "$work"
mkdir -p "$work/pack" "$cache" "$out"

say "making the environment (.venv)"
make -s .venv/.installed-cuda .venv/.installed-bench >&2
python=.venv/bin/python

# What the host's tests and measuring import; training (xgboost, scipy) stays here.
say "fetching packages for Python 3.12"
packages=(
  'apache-tvm==0.27.0.post1' 'apache-tvm-ffi>=0.1.14.post0,<0.1.15' 'numpy>=2,<3' ml-dtypes typing-extensions
  'onnx>=1.17' protobuf 'onnxslim>=0.1.60' sympy mpmath colorama packaging
  'click>=8.1' 'rich>=13' markdown-it-py mdurl pygments 'jinja2>=3.1' markupsafe
  'pytest>=8' pluggy iniconfig 'pytest-timeout>=2.3' 'nvidia-cuda-runtime>=13,<14'
)
platforms=()
for number in 28 27 24 17; do platforms+=(--platform "manylinux_2_${number}_x86_64"); done
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary :all: \
  --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none \
  "${platforms[@]}" --platform manylinux2014_x86_64 --platform any \
  --target "$work/site" "${packages[@]}" >&2

site=$work/site
rm -rf "$site"/numpy/*/tests "$site"/numpy/tests "$site"/onnx/backend/test/data "$site"/onnx/test \
  "$site"/sympy/*/tests "$site"/sympy/*/*/tests "$site"/tvm/{web,3rdparty,include,src} "$site"/tvm_ffi/include \
  "$site"/nvidia/cu13/include "$site"/bin
find "$site" -name '*.a' -delete

say "packing libtvm_compiler.so (some minutes the first time)"
library=$site/tvm/lib/libtvm_compiler.so
strip --strip-unneeded "$library"
packed=$cache/libtvm_compiler-$(sha256sum "$library" | cut -c1-16).so.xz
if [ ! -f "$packed" ]; then
  xz --x86 --lzma2=preset=9,dict=256MiB --stdout "$library" > "$packed.tmp"
  mv "$packed.tmp" "$packed"
fi
ln "$packed" "$work/pack/libtvm_compiler.so.xz" 2>/dev/null || cp "$packed" "$work/pack/libtvm_compiler.so.xz"
rm "$library"

say "packing the other packages and the project"
tar -C "$work" -cf - site | xz -9 -T0 > "$work/pack/site.tar.xz"
[ -z "$(git status --porcelain --untracked-files=no)" ] || say "note: uncommitted changes are not taken along"
git archive --prefix=project/ HEAD | xz -9 > "$work/pack/project.tar.xz"

if [ "$prebuilt" = yes ]; then
  say "building the libraries for $target"
  rm -rf build/cuda
  # What does not build is named by its last line and in index.json; the host's tests fail on it.
  "$python" -m scripts.cuda.prebuild --out build/cuda --target "$target" ${models:+--models "$models"} >&2 ||
    say "note: some libraries were not built"
  if [ "$batches" -gt 0 ]; then
    last=cuda:${target##*[,:]}
    say "building $batches batches of kernels for records on $last"
    mkdir -p build/cuda/records
    echo "$last" > build/cuda/records/target
    PYTHONPATH=. "$python" scripts/collect_cuda.py --prebuild build/cuda/records --batches "$batches" \
      --target "$last" >&2 || fail "building kernels for records failed"
  fi
  tar -C build/cuda -cf - . | xz -9 -T0 > "$work/pack/prebuilt.tar.xz"
fi

say "cutting parts of at most $part_mib MiB"
rm -f "$out"/tvmpass-gpu.part* "$out"/manifest.json
tar -C "$work/pack" -cf - . | split --bytes="${part_mib}MiB" --numeric-suffixes=1 --suffix-length=2 - "$out/tvmpass-gpu.part"
cp scripts/cuda/unpack.sh "$out/unpack.sh"
"$python" - "$out" "$(git rev-parse HEAD)" "$target" "$prebuilt" <<'PYTHON'
import hashlib, json, pathlib, sys
out, commit, target, prebuilt = pathlib.Path(sys.argv[1]), *sys.argv[2:]
parts = [
    {"name": p.name, "bytes": p.stat().st_size, "sha256": hashlib.sha256(p.read_bytes()).hexdigest()}
    for p in sorted(out.glob("tvmpass-gpu.part*"))
]
document = {"schema": 1, "commit": commit, "python": "3.12", "target": target,
            "prebuilt": prebuilt == "yes", "parts": parts}
(out / "manifest.json").write_text(json.dumps(document, indent=1) + "\n")
PYTHON
rm -rf "$work"
say "done"
ls -l "$out" | awk 'NR > 1 { printf "%12d  %s\n", $5, $9 }'
