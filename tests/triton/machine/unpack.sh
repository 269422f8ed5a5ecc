# Sourced on the machine with the GPU: `. unpack.sh DIR`, where DIR holds what pack_triton.sh made. Unpacks it once and
# lets Python and Triton find it.
triton=${TMPDIR:-/tmp}/triton-3.9
if [ ! -e "$triton/unpacked" ]; then
    mkdir -p "$triton" && tar -C "$triton" -xJf "$1/t39py.tar.xz" &&
        xz -dc "$1/t39so.xz" >"$triton/triton/_C/libtriton.so" && chmod +x "$triton/triton/_C/libtriton.so" &&
        touch "$triton/unpacked"
fi
export PYTHONPATH="$triton${PYTHONPATH:+:$PYTHONPATH}"
TRITON_PTXAS_PATH=$(command -v ptxas || echo /usr/local/cuda/bin/ptxas)
export TRITON_PTXAS_PATH TRITON_PTXAS_BLACKWELL_PATH="$TRITON_PTXAS_PATH" TRITON_DEFAULT_FP_FUSION=1
