#!/usr/bin/env bash
# The service under a real systemd: a fresh Debian 12 is booted in a container with systemd as its first process, the
# package is installed there, and what the unit promises is looked at while jobs run: ready, status, the score, what it
# cannot reach, credentials, the journal, a reload, kill -9, a hang, a stop, an upgrade, a power cut, the socket unit, the
# drop-ins, purge. The last line is "N passed, N failed[, N skipped]".
#   tests/systemd/run.sh OUT
# Packages are fetched before it boots; it has no network. The machine's kernel is shared: what needs another (a card, a
# disk that loses what was not synced) is not seen here. Bounded: each wait has its end.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath "$1")
. tests/support/shell/daemon.sh # wait_for, field
. tests/support/shell/debian.sh # say, skip, build, fresh_debian
. tests/support/shell/boot.sh   # boot, within, cut_power
root=$work/root
unit=needled.service
dropins=$root/etc/systemd/system/$unit.d
clean_up() { end_boot; }

# ---- a Debian that boots ------------------------------------------------------------------------------------

command -v systemd-nspawn >/dev/null || skip "a booted Debian: systemd-nspawn is not installed"
say "the package is built" build "$version" "$work/one"
say "and a later version" build "$next" "$work/next"
fresh_debian "$root"
cp "$work/one/$deb" "$work/next/$next_deb" "$root/root/"
prepare() {
    local apt="env DEBIAN_FRONTEND=noninteractive LC_ALL=C timeout 300 chroot $root apt-get"
    $apt update && $apt satisfy -y --no-install-recommends systemd-sysv dbus "$(dpkg-deb -f "$work/one/$deb" Depends)"
} >"$log" 2>&1
prepare || skip "a booted Debian: its packages cannot be had: $(tail -n 1 "$log")"
rm -f "$root/etc/resolv.conf"
boot || skip "a booted Debian: it does not boot: $(tail -n 1 "$log")"

# shown PROPERTY: of the service, as systemd has it. is_now PROPERTY VALUE.
shown() { within systemctl show -p "$1" --value "${2:-$unit}"; }
is_now() { is "$(shown "$1")" "$2"; }
main_pid() { shown MainPID; }
# ctl, api: over the Unix socket, and over the container's loopback.
ctl() { within needlectl --server unix:/run/needled/needled.sock "$@"; }
api() { connected curl -s --max-time 20 "http://127.0.0.1:7733$1" "${@:2}"; }
job_field() { api "/v1/fine_tuning/jobs/$1" | field "$2"; }
has_status() { is "$(job_field "$1" status)" "$2"; }
past() { [ "$(job_field "$1" completed_steps)" -gt "$2" ] 2>/dev/null; }
journal() { within journalctl -b -u "$unit" --no-pager "$@" 2>/dev/null; }
logged() { journal -o cat | grep -P -- "$1" >/dev/null; }
# submit FILE MODEL EPOCHS: prints the job's id.
submit() {
    ctl submit "/root/$1.jsonl" --model "$2" --no-watch --set n_epochs="$3" --set batch_size=4 --set lora_rank=4 \
        --set lora_alpha=8 --set val_split=0 | sed -n 's/^created //p'
}
# dropin NAME LINE...: of [Service], for the test.
dropin() {
    mkdir -p "$dropins" && printf '%s\n' '[Service]' "${@:2}" >"$dropins/$1.conf" && within systemctl daemon-reload
}

# ---- installed ----------------------------------------------------------------------------------------------

within dpkg -i "/root/$deb" >"$log" 2>&1
say "the package is installed" is $? 0
say "which starts the service" is_now ActiveState active
say "and has it start with the system" is "$(within systemctl is-enabled needled)" enabled
say "it answers as soon as systemd says that it is active" is "$(api /healthz -o /dev/null -w '%{http_code}')" 200
ready_after_port() {
    local serving active
    serving=$(journal -o json | grep 'port 7733' | field _SOURCE_REALTIME_TIMESTAMP)
    active=$(date -d "$(within systemctl show -p ActiveEnterTimestamp --value --timestamp=us+utc needled)" +%s%6N)
    [ -n "$serving" ] && [ "$serving" -le "$active" ]
}
say "it became active when it had said so, and not before" ready_after_port
say "the status says that it is idle" wait_for 10 is_now StatusText idle
say "the socket unit is there, and off" is "$(within systemctl is-enabled needled.socket)" disabled
verified() { is "$(within systemd-analyze verify --man=no needled.service needled.socket 2>&1)" ""; }
say "systemd finds nothing wrong with its units" verified

# ---- a job, and who runs it ---------------------------------------------------------------------------------

for base in mini needle-3; do
    from=tests/fixtures/needle3
    [ "$base" = needle-3 ] || from=$from/mini
    within install -d -o needled -g needled -m 700 "/var/lib/needled/models/$base"
    cp "$from/base.safetensors" "$from/tokenizer.model" "$root/var/lib/needled/models/$base/"
    within chown -R needled:needled "/var/lib/needled/models/$base"
done
"$out/tests/make_lines" 64 5 demo >"$root/root/short.jsonl"
"$out/tests/make_lines" 4000 6 demo >"$root/root/long.jsonl"
echo '{"checkpoint_steps": 5}' >"$root/etc/needled/needled.json"
dropin limit '[Unit]' StartLimitIntervalSec=0 # it is started more often here than a service that is well
dropin test RestartSec=500ms
within systemctl restart needled
medium=$(submit short needle-3 40) # 640 steps: long enough to be found at work, and to see its end
say "a job runs" wait_for 60 past "$medium" 0
within systemctl kill -s KILL --kill-who=main needled
say "kill -9 in the middle of it: systemd starts it again" wait_for 60 is_now NRestarts 1
goes_on() { [ "$(job_field "$medium" attempts)" = 2 ]; }
say "another process goes on with the job" wait_for 60 goes_on
says_job() { [[ $(shown StatusText) =~ ^"training $medium on cpu:0, step "[0-9]+" of 640" ]] || has_status "$medium" succeeded; }
say "the status says which job runs where, and how far it is" wait_for 60 says_job

# While it trains: what is in force.
score() { within systemd-analyze security --no-pager needled.service | sed -n 's/.*exposure level for needled.service: \([0-9.]*\) .*/\1/p'; }
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a + 0 <= b + 0) }'; }
found=$(score)
say "its exposure is at most 1.5 of 10 as it runs ($found)" at_most "$found" 1.5
pid=$(main_pid)
status_line() { within sed -n "s/^$1:[[:space:]]*//p" "/proc/${2:-$pid}/status"; }
say "it runs as its user" is "$(status_line Uid | tr '\t' '\n' | sort -u)" "$(within id -u needled)"
say "without any capability" is "$(status_line CapBnd)$(status_line CapEff)$(status_line CapPrm)" "$(printf '0%.0s' {1..48})"
say "and no way to new ones" is "$(status_line NoNewPrivs)" 1
say "under a system-call filter of its own" [ "$(status_line Seccomp_filters)" -gt "$(status_line Seccomp_filters 1)" ]
# seen WORDS...: in its mounts and its control group, though as root.
beside() {
    within sh -c 'echo $$ >"/sys/fs/cgroup$(sed -n s/^0:://p "/proc/$1/cgroup")/cgroup.procs" && shift && exec "$@"' - \
        "$pid" "$@"
}
seen() { within nsenter -t "$pid" -m -- "$@"; }
runs() { within sh -c 'cat /proc/[0-9]*/comm 2>/dev/null' | grep -x needled >/dev/null; }
refused() { ! "$@" >/dev/null 2>&1; }
for place in /etc /usr /root /var /var/lib /home /boot; do
    say "$place cannot be written to" refused seen touch "$place/from-needled"
done
say "its state can" seen sh -c 'touch /var/lib/needled/x && rm /var/lib/needled/x'
say "/home and /root look empty" is "$(seen ls -A /home /root 2>/dev/null | grep -v ':$')" ""
say "/tmp is its own" is "$(within touch /tmp/foreign && seen ls /tmp/foreign 2>/dev/null)" ""
nodes=$(seen find /dev -type c -printf '%f\n' | sort | xargs)
say "of devices it sees the harmless ones: $nodes" is "$(sed 's/\b\(full\|null\|ptmx\|random\|tty\|urandom\|zero\)\b//g' <<<"$nodes" | tr -d ' 0-9')" ""
within mknod /root/kmsg c 1 11 # a node that the class of harmless ones does not have
if within head -c 0 /root/kmsg; then
    say "and may open no others" refused beside head -c 0 /root/kmsg
else
    echo "skip - and may open no others: nor may root in this container"
fi
connected ip address add 192.0.2.1/32 dev lo 2>/dev/null # another machine, for a filter
knocks() { [[ $("$@" timeout 3 bash -c ': </dev/tcp/192.0.2.1/7799' 2>&1) == *"Connection refused"* ]]; }
if knocks within; then
    say "other machines are out of its reach" refused knocks beside
else
    echo "skip - other machines are out of its reach: no address for one"
fi

# ---- journal, reload ----------------------------------------------------------------------------------------

say "the journal has what concerns a job" [ -n "$(journal -o cat "JOB_ID=$medium")" ]
entry=$(journal -o json "JOB_ID=$medium" | tail -n 1)
has_field() { [[ $(field "$1" <<<"$entry") == $2 ]]; }
for pair in MESSAGE=?* PRIORITY=6 SYSLOG_IDENTIFIER=needled _SYSTEMD_UNIT=needled.service "_PID=$pid" "JOB_ID=$medium"; do
    say "an entry has the field $pair" has_field "${pair%%=*}" "${pair#*=}"
done
echo '{"checkpoint_steps": 5, "log_level": "debug"}' >"$root/etc/needled/needled.json"
say "systemctl reload ends well" within systemctl reload needled
say "when the settings were read again" wait_for 10 logged 'settings were read again'
say "and the process is the same" is_now MainPID "$pid"
echo '{"log_level": 7}' >"$root/etc/needled/needled.json"
say "a reload of settings that cannot be used fails" refused within systemctl reload needled
say "and the service goes on" is_now ActiveState active
echo '{"checkpoint_steps": 5}' >"$root/etc/needled/needled.json"
say "the job that was killed ends well" wait_for 240 has_status "$medium" succeeded

# ---- a hang, a stop, an upgrade, a power cut: one long job through all of them ------------------------------

long=$(submit long needle-3 50) # 50,000 steps: more than any machine makes meanwhile
waiting=$(submit short mini 1)
dropin test RestartSec=500ms WatchdogSec=8s
within systemctl restart needled
say "a long job runs" wait_for 60 past "$long" 0
say "another one waits" wait_for 60 has_status "$waiting" queued
pid=$(main_pid)
steps=$(job_field "$long" completed_steps)
within systemctl kill -s STOP --kill-who=main needled
replaced() { is_now ActiveState active && [ "$(main_pid)" != "$pid" ]; }
say "a process that hangs is replaced by the watchdog" wait_for 90 replaced
say "which the journal calls by its name" logged 'Watchdog timeout'
say "the job goes on" wait_for 60 past "$long" "$steps"
dropin test RestartSec=500ms
within systemctl restart needled
say "and after a restart" wait_for 60 past "$long" "$(job_field "$long" completed_steps)"

pid=$(main_pid)
say "systemctl stop ends it in the middle of a step" within systemctl stop needled
say "within the limit and with status 0" is "$(shown Result) $(shown ExecMainStatus)" "success 0"
say "and nothing of it is left" refused runs
within systemctl start needled
steps=$(job_field "$long" completed_steps)
say "the job goes on at the next start" wait_for 60 past "$long" "$steps"
say "it has not failed" has_status "$long" running

steps=$(job_field "$long" completed_steps)
pid=$(main_pid)
within dpkg -i "/root/$next_deb" >"$log" 2>&1
say "an upgrade in the middle of the job" is "$? $(within dpkg-query -W -f '${Version}' needled)" "0 $next"
say "starts the new program" replaced
say "which goes on with the job" wait_for 60 past "$long" "$steps"
say "the administrator's settings are as they were" is "$(<"$root/etc/needled/needled.json")" '{"checkpoint_steps": 5}'
say "the job before is still there" has_status "$medium" succeeded

steps=$(job_field "$long" completed_steps)
cut_power
boot
say "after a power cut it boots, and the service with it" wait_for 60 is_now ActiveState active
say "the job goes on" wait_for 60 past "$long" "$steps"
say "nothing else was lost" has_status "$medium" succeeded
ctl cancel "$long" >"$log" 2>&1
say "and the one that waited runs and ends" wait_for 60 has_status "$waiting" succeeded

# ---- credentials --------------------------------------------------------------------------------------------

# opens KEY: an answer of 401 without it, 200 with it.
opens() {
    local code="-o /dev/null -w %{http_code}"
    # shellcheck disable=SC2086 # several words
    is "$(api /v1/files $code) $(api /v1/files $code -H "Authorization: Bearer $1")" "401 200"
}
reloads() { within systemctl reload needled && opens "$1"; }
# credential NAME KEY LINE...: with those lines of the unit, that key opens.
credential() {
    dropin key "${@:3}"
    within systemctl restart needled
    say "a key as $1 is in force" opens "$2"
    say "and stays so after a reload" reloads "$2"
    say "and is told to nobody" refused grep -qF -- "$2" <<<"$(journal; within cat "/proc/$(main_pid)/environ" | tr '\0' ' ')"
}
install -D -m 600 /dev/stdin "$root/etc/credstore/needled.api_key" <<<"key-of-the-store"
credential "a file in /etc/credstore" key-of-the-store
say "which no other user can read" refused within setpriv --reuid 65534 --regid 65534 --clear-groups \
    cat /run/credentials/needled.service/api_key
rm "$root/etc/credstore/needled.api_key"
install -D -m 600 /dev/stdin "$root/etc/credstore.encrypted/needled.api_key" < <(
    within sh -c 'echo key-that-was-encrypted | systemd-creds encrypt --with-key=host --name=api_key - - 2>/dev/null')
credential "an encrypted file" key-that-was-encrypted LoadCredentialEncrypted=api_key:needled.api_key
rm "$root/etc/credstore.encrypted/needled.api_key"
install -m 600 /dev/stdin "$root/root/key" <<<"key-at-a-path"
credential "a file anywhere" key-at-a-path LoadCredential=api_key:/root/key
rm "$root/root/key"
credential "text in the unit" key-in-the-unit SetCredential=api_key:key-in-the-unit
rm "$dropins/key.conf"
within systemctl daemon-reload
within systemctl restart needled
say "without any there is none" is "$(api /v1/files -o /dev/null -w '%{http_code}')" 200

# ---- ends that a restart does not mend, and others -----------------------------------------------------------

dropin test RestartSec=3s
echo '{"log_level": 7}' >"$root/etc/needled/needled.json"
say "settings that cannot be used: the start fails" refused within systemctl restart needled
say "with the status that says so" is "$(shown ExecMainStatus)" 2
say "and is not tried again" is "$(shown ActiveState) $(shown NRestarts)" "failed 0"
echo '{"platforms": "cuda"}' >"$root/etc/needled/needled.json"
within systemctl reset-failed needled
say "a device that they demand and is not there: the start fails" refused within systemctl restart needled
say "with the status that says so" is "$(shown ExecMainStatus)" 3
tried_again() { [ "$(shown NRestarts)" -ge 1 ]; } # every 3 s here
say "and is tried again: it may come" wait_for 30 tried_again
echo '{"checkpoint_steps": 5}' >"$root/etc/needled/needled.json"
say "which ends well once it can" wait_for 30 is_now ActiveState active

# ---- drop-ins -----------------------------------------------------------------------------------------------

for name in gpu network; do
    cp "systemd/drop-ins/$name.conf" "$dropins/"
    within systemctl daemon-reload
    say "the drop-in $name.conf is read" grep -qF "/$name.conf" <<<"$(within systemctl cat needled)"
    say "and systemd finds nothing wrong with it" verified
    say "the service starts with it" within systemctl restart needled
    found=$(score)
    say "its exposure is at most 2.0 then ($found)" at_most "$found" 2.0
done
complaints() { within journalctl -b --no-pager _PID=1 2>/dev/null | grep -P 'needled\.(service|socket)(\.d/[^:]*)?:\d+:'; }
say "systemd has complained of no line of the unit or the drop-ins" is "$(complaints)" ""
rm "$dropins/test.conf" "$dropins/gpu.conf" "$dropins/network.conf"
within systemctl daemon-reload

# ---- sockets that systemd holds -----------------------------------------------------------------------------

say "the socket is refused while the service has it" refused within systemctl start needled.socket
say "which goes on" is "$(shown ActiveState) $(api /healthz -o /dev/null -w '%{http_code}')" "active 200"
within systemctl disable --now needled >"$log" 2>&1
within systemctl enable --now needled.socket >>"$log" 2>&1
say "the socket unit listens" is "$(within systemctl is-active needled.socket) $(shown ActiveState)" "active inactive"
say "the first connection starts the service and is answered" is "$(api /healthz -o /dev/null -w '%{http_code}')" 200
say "it is active then" is_now ActiveState active
say "it serves what it was passed" logged 'serving 2 sockets passed to us'
say "the Unix socket too" has_status "$medium" succeeded
within systemctl restart --no-block needled
say "a connection waits while it is restarted" is "$(api /healthz -o /dev/null -w '%{http_code}')" 200
within systemctl stop needled.socket needled
say "a stop takes the socket along" [ ! -S "$root/run/needled/needled.sock" ]
within systemctl disable needled.socket >"$log" 2>&1

# ---- removed ------------------------------------------------------------------------------------------------

within systemctl enable --now needled >"$log" 2>&1
say "the service runs" is_now ActiveState active
rm -r "$dropins" # the administrator's, and not the package's to remove
within dpkg --purge needled >"$log" 2>&1
say "it is purged while it runs" is "$(within dpkg-query -W needled 2>/dev/null)" ""
say "and stopped" refused runs
say "systemd knows it no more" is_now LoadState not-found
left() {
    within getent passwd needled
    within getent group needled
    within find / -xdev \( -path /proc -o -path /sys -o -path /root \) -prune -o -name '*needled*' -print
    within find /run -name '*needled*'
}
left >"$log"
say "nothing of it is left" [ ! -s "$log" ]
say "and no unit has failed" is "$(within systemctl --failed --no-legend --plain)" ""
