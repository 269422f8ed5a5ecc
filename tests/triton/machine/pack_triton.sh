#!/usr/bin/env bash
# Packs what stock Triton 3.9 needs to run on a machine that reaches no package registry: about 46 MiB in two files,
# which unpack.sh unpacks there. The machine brings its own torch, ptxas, xz and tar.
# usage: pack_triton.sh DIR; PYV=3.11 packs for another Python than 3.12.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m pip download --quiet --no-deps --only-binary=:all: --implementation cp \
    --python-version "${PYV:-3.12}" --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
    --dest "$scratch" triton==3.9.0
(cd "$scratch" && python3 -m zipfile -e triton-3.9.0-*.whl .)
strip --strip-all "$scratch/triton/_C/libtriton.so" -o "$scratch/libtriton.so"
xz --x86 --lzma2=preset=6,dict=256MiB -T1 -c "$scratch/libtriton.so" >"$out/t39so.xz"
tar -C "$scratch" --exclude=libtriton.so --exclude=libproton.so --exclude='cupti*' --exclude='bin/ptxas*' \
    --exclude=backends/amd/lib --exclude=backends/amd/include \
    -cJf "$out/t39py.tar.xz" triton triton-3.9.0.dist-info
ls -l "$out"
