#!/usr/bin/env bash
# The units as they are shipped, and what installs them: make install, uninstall; systemd-analyze verify and security.
# What no test here can see is systemd starting them: that needs it as the first process.
#   tests/ops/units.sh OUT
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
. tests/support/shell/daemon.sh
. tests/support/shell/jobs.sh
trap 'rm -rf "$work"' EXIT
status= answer=

# ---- install ----------------------------------------------------------------------------------------------

dest=$work/dest
install_to() { DESTDIR=$dest PREFIX=${1:-/usr/local} systemd/install.sh "${2:-install}" "$out"; }
files() { find "$dest" ! -type d -printf '/%P\n' | sort; }
install_to
expect "make install puts the programs under the prefix" has '^needled \d' "$("$dest/usr/local/bin/needled" --version)"
expect "the unit names the program where it is" grep -q '^ExecStart=/usr/local/bin/needled ' \
    "$dest/usr/local/lib/systemd/system/needled.service"
expect "everything is readable by all, and writable by one" [ -z "$(find "$dest" -perm /022 ! -type l)" ]
for page in man8/needled.8 man5/needled.json.5 man1/needlectl.1; do
    expect "the page $page is there" [ -s "$dest/usr/local/share/man/$page" ]
done
expect "bash completes with what is installed" bash -n "$dest/usr/local/share/bash-completion/completions/needlectl"
echo '{"log_level": "warn"}' >"$dest/etc/needled/needled.json"
mkdir -p "$dest/var/lib/needled" && touch "$dest/var/lib/needled/needled.db"
install_to
expect "a second install keeps changed settings" grep -q warn "$dest/etc/needled/needled.json"
install_to /usr/local uninstall
expect "uninstall leaves state and changed settings, and nothing else" is "$(files | xargs)" \
    "/etc/needled/needled.json /var/lib/needled/needled.db"
install_to
cp systemd/needled.json "$dest/etc/needled/needled.json"
install_to /usr/local uninstall
expect "settings that were not changed go too" is "$(files | xargs)" "/var/lib/needled/needled.db"
expect "so do empty folders of its own" [ ! -e "$dest/etc/needled" -a ! -e "$dest/usr/local/share/doc/needled" ]
for prefix in opt '/opt/a b' /opt/100%n '/opt/a|b' '$HOME'; do
    answer=$(install_to "$prefix" 2>&1)
    expect "the prefix $prefix is refused" is "$? $answer" \
        "2 install.sh: '$prefix' must begin with '/' and hold only letters, digits and / . _ + ~ -"
    expect "and nothing is installed" is "$(files | xargs)" "/var/lib/needled/needled.db"
done

# ---- units ------------------------------------------------------------------------------------------------

if ! command -v systemd-analyze >/dev/null; then
    echo "skip - the units: systemd-analyze is not installed"
    exit 0
fi
install_to /usr
units=$work/units
mkdir "$units"
sed "s|/usr/bin/needled|$dest/usr/bin/needled|" systemd/needled.service >"$units/needled.service"
cp systemd/needled.socket "$units/"
# verified [FILE]: what systemd-analyze verify says of the service, the socket and that drop-in.
verified() {
    mkdir -p "$units/needled.service.d"
    rm -f "$units/needled.service.d/"*
    [ $# = 0 ] || cp "$@" "$units/needled.service.d/"
    answer=$(SYSTEMD_LOG_LEVEL=notice systemd-analyze verify --man=no "$units/needled.service" "$units/needled.socket" 2>&1)
}
verified
expect "systemd finds nothing wrong with the units" is "$? $answer" "0 "
for drop_in in systemd/drop-ins/*.conf; do
    verified "$drop_in"
    expect "nor with ${drop_in##*/}" is "$? $answer" "0 "
done
# exposed TENTHS [DROP-IN...]: whether the score is at most that.
exposed() {
    local tenths=$1
    shift
    verified "$@"
    answer=$(systemd-analyze security --no-pager --offline=true --threshold="$tenths" "$units/needled.service" 2>&1)
}
exposed 15
expect "exposed at most 1.5 on the processor, from this machine alone" is $? 0
exposed 20 systemd/drop-ins/gpu.conf
expect "at most 2.0 with cards" is $? 0
exposed 20 systemd/drop-ins/gpu.conf systemd/drop-ins/network.conf
expect "and at most 2.0 from everywhere" is $? 0
exposed 5
expect "the score is one that can be missed" is $? 1

# The words of the service that others rely on.
says() { grep -qx -- "$1" systemd/needled.service; }
expect "settings and a damaged database are no reason to start again" says 'RestartPreventExitStatus=2 4'
expect "the watchdog is on" says 'WatchdogSec=[0-9]*s'
if command -v systemd-sysusers >/dev/null; then
    mkdir -p "$work/users/etc"
    expect "sysusers makes the user" systemd-sysusers --root="$work/users" "$PWD/systemd/needled.sysusers"
    expect "which is the unit's" grep -q "^$(sed -n 's/^User=//p' systemd/needled.service):" "$work/users/etc/passwd"
    if [ "$(id -u)" = 0 ]; then
        systemd-tmpfiles --root="$work/users" --create "$PWD/systemd/needled.tmpfiles" 2>"$work/tmpfiles"
        expect "tmpfiles makes the folders, for nobody else" is \
            "$(stat -c %a "$work/users/var/lib/needled/models" 2>&1)" 700
    fi
fi
