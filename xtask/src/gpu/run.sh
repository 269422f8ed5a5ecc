#!/bin/sh
# Says what of this machine works (`gsan doctor`), then runs every GPU test beside this script, each
# in a process and with a time limit of its own, and the C++ example; prints one line for each: what
# came of it, seconds, the test, and what the test had to say.
# Exit code 1 if one failed. An argument is a part of the names of the tests to run, which begin with
# the crate's: `./run.sh gsan-sync` or `./run.sh 'gsan-sync capture'`.
cd "$(dirname "$0")" || exit 1
log=$(mktemp) && failures=$(mktemp) || exit 1
trap 'rm -f "$log" "$failures"' EXIT

# What the driver made of the kernels once, it need not make again.
export CUDA_CACHE_PATH="${CUDA_CACHE_PATH:-$PWD/cache}"

timeout 60 ./gsan doctor
printf '\n%-8s %4s  %s\n' RESULT SEC TEST
for binary in ./*.test; do
    crate=$(basename "$binary" .test)
    "$binary" --list --format terse >"$log" 2>&1 || { cat "$log"; exit 1; }
    for test in $(sed -n "s/^\(.*\): test\$/$crate \1/p" "$log" | grep -F -e "${1:-}" |
        sed "s/^$crate //"); do
        start=$(date +%s)
        timeout 300 "$binary" --exact "$test" --nocapture >"$log" 2>&1
        code=$?
        seconds=$(($(date +%s) - start))
        # What the test printed, without the frame of the test runner.
        said=$(sed -e 's/^test [^ ]* \.\.\. //' "$log" |
            grep -v -e '^running 1 test$' -e '^test result:' -e '^ok$' -e '^$' | tr '\n' ';')
        if [ "$code" -ne 0 ]; then
            result=FAILED
            { echo "--- $crate $test (exit code $code)"; cat "$log"; } >>"$failures"
            said=
        elif grep -q 'skipped: ' "$log"; then
            result=skipped
        else
            result=ok
        fi
        printf '%-8s %4s  %s %s  %s\n' "$result" "$seconds" "$crate" "$test" "$said"
    done
done

# The C++ example ends with 1 where it has a race, and with 0 where it has none.
example() {
    wanted=$1
    shift
    start=$(date +%s)
    timeout 120 ./pipeline "$@" --gpu kernels.ptx >"$log" 2>&1
    code=$?
    result=ok
    if grep -q 'libcuda' "$log"; then
        result=skipped
    elif [ "$code" -ne "$wanted" ]; then
        result=FAILED
        { echo "--- example pipeline $* (exit code $code, not $wanted)"; cat "$log"; } >>"$failures"
    fi
    printf '%-8s %4s  example pipeline %s\n' "$result" "$(($(date +%s) - start))" "$*"
}
case "example pipeline" in
*"${1:-}"*)
    example 0
    example 1 racy
    ;;
esac

if [ -s "$failures" ]; then
    cat "$failures"
    exit 1
fi
