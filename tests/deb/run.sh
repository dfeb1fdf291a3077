#!/usr/bin/env bash
# The Debian packages: built twice alike, looked at by lintian, and in a fresh Debian 12 (debootstrap, minbase) installed,
# used, upgraded with a job in the queue, removed and purged. The last line is "N passed, N failed[, N skipped]".
#   tests/deb/run.sh OUT        tests/support/shell/debian.sh has how the Debian is made, and once
# A chroot has no systemd as its first process: the daemon is started here as the unit would start it. The unit itself is
# for tests/systemd. Bounded: an install that takes longer than five minutes has failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath "$1")
. tests/support/shell/daemon.sh # wait_for, stop_daemon, field
. tests/support/shell/jobs.sh   # lasting_lines
. tests/support/shell/debian.sh # say, skip, build, fresh_debian
root=$work/root
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
clean_up() {
    [ -z "$daemon" ] || kill "$daemon"
    umount "$root/proc"
}

# ---- built ------------------------------------------------------------------------------------------------

say "the package is built" build "$version" "$work/one"
build "$version" "$work/two"
say "twice alike, byte for byte" cmp -s "$work/one/$deb" "$work/two/$deb"
say "and a later version" build "$next" "$work/next"
if command -v lintian >/dev/null; then
    lintian --fail-on error,warning "$work/one/$deb" >"$log" 2>&1
    say "lintian finds no error and no warning" is $? 0
else
    echo "skip - lintian: it is not installed"
fi

# ---- installed --------------------------------------------------------------------------------------------

fresh_debian "$root"
mount -t proc proc "$root/proc" 2>"$log" || skip "a fresh Debian: $(<"$log")"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod 755 "$root/usr/sbin/policy-rc.d"
cp "$work/one/$deb" "$work/next/$next_deb" "$root/tmp/"
within() { chroot "$root" "$@"; }
install_deb() { timeout 300 chroot "$root" apt-get install -y --no-install-recommends "$1" >"$log" 2>&1; }
within apt-get update >"$log" 2>&1
say "it is installed with what it needs" install_deb "/tmp/$deb"
say "its user is there" grep -q ^needled: "$root/etc/passwd"
owned() { is "$(within stat -c '%U:%G %a' /var/lib/needled/models)" "needled:needled 700"; }
say "so are its folders, its own" owned
enabled() { [ -L "$root/etc/systemd/system/multi-user.target.wants/needled.service" ]; }
say "it starts with the system" enabled
say "dpkg finds nothing changed" is "$(within dpkg -V needled 2>&1)" ""
within needled --config /etc/needled/needled.json --state-dir /tmp/none --check-config >"$log" 2>&1
say "the settings that it brings can be used" is $? 0

# ---- used -------------------------------------------------------------------------------------------------

# start: as the unit does.
start() {
    : >"$work/needled.log"
    setsid chroot "$root" env -i PATH=/usr/bin:/bin STATE_DIRECTORY=/var/lib/needled RUNTIME_DIRECTORY=/run/needled \
        setpriv --reuid needled --regid needled --clear-groups \
        needled --config /etc/needled/needled.json --listen 127.0.0.1:0 >"$log" 2>"$work/needled.log" &
    daemon=$!
    wait_for 60 grep -q 'port [0-9]*"$' "$work/needled.log"
}
ctl() { within needlectl --server unix:/run/needled/needled.sock "$@"; }
status_of() { ctl jobs --json 2>/dev/null | tr '{' '\n' | grep "\"id\":\"$1\"" | field status; }
has_status() { is "$(status_of "$1")" "$2"; }
steps_of() { ctl jobs get "$1" --json 2>/dev/null | field completed_steps; }
past() { [ "$(steps_of "$1")" -gt "$2" ] 2>/dev/null; }
# submit FILE EPOCHS: prints the job's id.
submit() {
    ctl submit "/tmp/$1.jsonl" --model mini --no-watch --set n_epochs="$2" --set batch_size=1 --set lora_rank=4 \
        --set lora_alpha=8 --set val_split=0 | sed -n 's/^created //p'
}
mkdir "$root/var/lib/needled/models/mini"
cp tests/fixtures/needle3/mini/base.safetensors tests/fixtures/needle3/mini/tokenizer.model \
    "$root/var/lib/needled/models/mini/"
within chown -R needled:needled /var/lib/needled/models/mini
lasting_lines >"$root/tmp/long.jsonl" # fifty epochs of it: until it is cancelled
head -n 64 "$root/tmp/long.jsonl" >"$root/tmp/short.jsonl"
say "the daemon runs as its user" start
first=$(submit short 1)
say "a job succeeds" wait_for 120 has_status "$first" succeeded
long=$(submit long 50)
say "a long one runs" wait_for 60 past "$long" 5
waiting=$(submit short 1)
say "another one waits" wait_for 60 has_status "$waiting" queued
stop_daemon
say "the daemon stops with status 0" is $? 0

# ---- upgraded, removed, purged -----------------------------------------------------------------------------

echo '{"log_level": "debug"}' >"$root/etc/needled/needled.json"
say "it is upgraded" install_deb "/tmp/$next_deb"
say "to the later version" is "$(within dpkg-query -W -f '${Version}' needled)" "$next"
say "settings of the administrator's stay" grep -q debug "$root/etc/needled/needled.json"
say "the daemon runs again" start
goes_on() { [ "$kept" -gt 0 ] && past "$long" $((kept + 5)); }
kept=$(steps_of "$long")
say "the job that ran goes on where it was" wait_for 120 goes_on
ctl cancel "$long" >"$log"
say "the one that waited runs next, and succeeds" wait_for 120 has_status "$waiting" succeeded
say "the one before is still there" has_status "$first" succeeded
stop_daemon

within apt-get remove -y needled >"$log" 2>&1
say "it is removed" [ ! -e "$root/usr/bin/needled" ]
say "and jobs and settings are not" [ -e "$root/var/lib/needled/needled.db" -a -e "$root/etc/needled/needled.json" ]
say "it is installed anew" install_deb "/tmp/$next_deb"
say "the daemon finds its jobs" start
say "all of them" is "$(status_of "$first") $(status_of "$waiting") $(status_of "$long")" "succeeded succeeded cancelled"
stop_daemon
within apt-get purge -y needled >"$log" 2>&1
say "it is purged" is "$(within dpkg-query -W needled 2>/dev/null)" ""
left() {
    within getent passwd needled
    within getent group needled
    find "$root" -xdev -path "$root/proc" -prune -o -path "$root/tmp" -prune -o -name '*needled*' -print |
        grep -v '/var/cache/\|/var/lib/apt/\|/var/log/'
}
left >"$log"
say "and nothing of it is left" [ ! -s "$log" ]
