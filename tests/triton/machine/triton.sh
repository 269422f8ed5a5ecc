#!/bin/sh
# In a bundle: `triton.sh PACKED COMMAND…` runs a command, by default the Triton programs, with the package of this bundle
# and with the Triton that PACKED holds (made by pack_triton.sh; "-": the one of this Python).
bundle=$(cd "$(dirname "$0")" && pwd) || exit 1
if [ "${1:--}" != - ]; then
    . "$bundle/unpack.sh" "$1"
fi
[ $# -gt 0 ] && shift
export PATH="$bundle:$PATH" PYTHONPATH="$bundle/python${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-${TMPDIR:-/tmp}/triton-cache}"
[ $# -gt 0 ] || set -- python3 "$bundle/tests/triton/run.py" --json "${OUT:-$bundle}/triton.json"
exec "$@"
