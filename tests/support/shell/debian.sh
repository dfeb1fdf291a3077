# Sourced by the scripts of tests/deb and tests/systemd after daemon.sh: results that are counted, our package, and a
# fresh Debian 12 to install it in. Wants: out, work. Sets: version, next (a later one), arch, log, deb, next_deb.

version=$(cat daemon/VERSION)
next=$version+1
arch=$(dpkg --print-architecture)
log=$work/log
deb=needled_${version}_$arch.deb next_deb=needled_${next}_$arch.deb
: >"$log"

# A commit meanwhile makes no other package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

passed=0 failed=0
# say WHAT CONDITION...: as result, counted; a failure shows the end of the log.
say() {
    local name=$1
    shift
    if "$@"; then
        echo "ok - $name"
        passed=$((passed + 1))
    else
        echo "not ok - $name"
        failed=$((failed + 1))
        tail -n 15 "$log"
    fi
}
is() { [ "$1" = "$2" ]; }

part= # what debootstrap has begun
drop_part() {
    [ -n "$part" ] || return 0
    umount "$part/proc" "$part/sys"
    rm -rf "$part"
} 2>/dev/null
# leave [SKIPPED]: the last line; clean_up is the script's own. skip WHAT: ends the script here.
leave() {
    clean_up >/dev/null 2>&1
    drop_part
    rm -rf "$work"
    echo "$passed passed, $failed failed${1:+, $1 skipped}"
    [ "$failed" -eq 0 ]
}
skip() {
    echo "skip - $1"
    trap - EXIT
    leave 1
    exit
}
trap 'leave; exit $((failed > 0))' EXIT

# build VERSION FOLDER: the package alone, without what nvcc may have made.
build() {
    mkdir -p "$2" && cp "$out/needled" "$out/needlectl" "$2/" && systemd/deb.sh "$2" "$1" >"$log" 2>&1
}

# fresh_debian FOLDER: a minimal bookworm in it, with this machine's sources of packages. Made once, in build/bookworm,
# or given in DEB_ROOT; debootstrap has DEB_SECONDS, 300.
fresh_debian() {
    local made=${DEB_ROOT:-build/bookworm}
    [ "$(id -u)" = 0 ] || skip "a fresh Debian: not root"
    command -v debootstrap >/dev/null || skip "a fresh Debian: debootstrap is not installed"
    if [ ! -e "$made" ]; then
        part=$made.part.$$
        mkdir -p "$(dirname "$made")"
        timeout "${DEB_SECONDS:-300}" debootstrap --variant=minbase bookworm "$part" >"$log" 2>&1 ||
            skip "a fresh Debian: debootstrap did not make it in ${DEB_SECONDS:-300} s: $(tail -n 1 "$log")"
        mv -T "$part" "$made" 2>/dev/null || drop_part # another run had made one first
        part=
    fi
    cp -a "$made" "$1"
    rm -rf "$1/etc/apt" && cp -r /etc/apt "$1/etc/" && cp /etc/resolv.conf "$1/etc/"
    echo force-unsafe-io >"$1/etc/dpkg/dpkg.cfg.d/quick" # it is thrown away
    [ ! -e /usr/share/keyrings ] || cp -rn /usr/share/keyrings "$1/usr/share/"
}
