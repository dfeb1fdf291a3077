# Sourced after daemon.sh: a daemon whose wall clock the test sets, while its monotonic clock goes on.
. tests/support/shell/shim.sh

# with_clock OUT: sets clocked to a folder whose needled runs under OUT/shims/clock.so.
with_clock() {
    with_shim "$1" clock "CLOCK_SHIM=$work/clock"
    clocked=$shimmed
    set_clock 0
}

# set_clock SECONDS: so far from this machine's, from now on.
set_clock() {
    local seconds=$1 bytes= shift
    for shift in 0 8 16 24 32 40 48 56; do
        bytes+=$(printf '\\x%02x' $((seconds >> shift & 255)))
    done
    printf "$bytes" 1<>"$work/clock" # in place: it is mapped
    clock=$seconds
}

# clock_now: the daemon's date.
clock_now() { echo $(($(date +%s) + clock)); }

# dates_of JOB: created_at, started_at and finished_at.
dates_of() { for name in created_at started_at finished_at; do field $name <<<"$1"; done | xargs; }
# dates_rise JOB: none before the one before it.
dates_rise() {
    local dates
    read -ra dates <<<"$(dates_of "$1")"
    [ ${#dates[@]} = 3 ] && [ "${dates[0]}" -le "${dates[1]}" ] && [ "${dates[1]}" -le "${dates[2]}" ]
}
