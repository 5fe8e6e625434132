#!/usr/bin/env bash
# Check the parts that lie beside this script and unpack them:   bash unpack.sh [FOLDER]
# Needs Python 3.12, tar and xz. FOLDER (default ./tvmpass-gpu) appears when all is there, or not at all.
set -euo pipefail
fail() { echo "unpack: $*" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-tvmpass-gpu}
[ ! -e "$folder" ] || fail "$folder exists already"
for tool in tar xz; do command -v $tool >/dev/null || fail "$tool is not installed"; done

python=''
for name in ${PYTHON:-} python3.12 python3 python; do
  if "$name" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then python=$name; break; fi
done
[ -n "$python" ] || fail "needs Python 3.12; name one with PYTHON=..."

[ -f "$here/manifest.json" ] || fail "manifest.json is missing in $here"
"$python" - "$here" <<'PYTHON' || exit 1
import hashlib, json, pathlib, sys
here = pathlib.Path(sys.argv[1])
bad = []
for part in json.loads((here / "manifest.json").read_text())["parts"]:
    path = here / part["name"]
    if not path.exists():
        bad.append(f"{part['name']} is missing")
    elif path.stat().st_size != part["bytes"]:
        bad.append(f"{part['name']} has {path.stat().st_size} bytes, not {part['bytes']}")
    elif hashlib.sha256(path.read_bytes()).hexdigest() != part["sha256"]:
        bad.append(f"{part['name']} is damaged (sha256)")
if bad:
    sys.exit("unpack: " + "; ".join(bad))
PYTHON

mkdir -p "$(dirname "$folder")"
partial=$folder.partial
rm -rf "$partial"
trap 'rm -rf "$partial"' EXIT
mkdir -p "$partial/pack"
cat "$here"/tvmpass-gpu.part* | tar -C "$partial/pack" -xf -
for archive in site project; do xz -dc "$partial/pack/$archive.tar.xz" | tar -C "$partial" -xf -; done
xz -dc "$partial/pack/libtvm_compiler.so.xz" > "$partial/site/tvm/lib/libtvm_compiler.so"
if [ -f "$partial/pack/prebuilt.tar.xz" ]; then
  mkdir -p "$partial/project/build/cuda"
  xz -dc "$partial/pack/prebuilt.tar.xz" | tar -C "$partial/project/build/cuda" -xf -
fi
rm -rf "$partial/pack"
cp "$here/manifest.json" "$partial/"
mv "$partial" "$folder"
echo "unpacked into $folder; now: $folder/project/scripts/cuda_measure.sh --minutes 8 --out RESULTS"
