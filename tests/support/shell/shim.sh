# Sourced after daemon.sh: the daemon under one of tests/support/shims, by LD_PRELOAD.

# with_shim OUT NAME [VARIABLE=VALUE...]: sets shimmed to a folder for start_daemon, whose needled runs under
# OUT/shims/NAME.so with those variables, and with those that the caller exports.
with_shim() {
    local out sanitizer
    out=$(realpath "$1")
    shimmed=$work/shimmed-$2
    mkdir -p "$shimmed"
    # a sanitizer's library wants to come first
    sanitizer=$(ldd "$out/needled" 2>/dev/null | sed -n 's/.*=> \(.*lib[at]san[^ ]*\) .*/\1/p')
    {
        echo '#!/bin/sh'
        [ $# -lt 3 ] || printf "export '%s'\n" "${@:3}"
        printf 'LD_PRELOAD="%s" exec "%s" "$@"\n' "${sanitizer:+$sanitizer }$out/shims/$2.so" "$out/needled"
    } >"$shimmed/needled"
    chmod +x "$shimmed/needled"
}
