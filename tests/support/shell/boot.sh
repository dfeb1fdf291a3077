# Sourced after debian.sh: a folder with a Debian booted in a container of its own, with systemd as its first process, a
# network of loopback alone and one hierarchy of control groups. Wants: root. Sets: leader, its systemd as seen from here.

leader= nspawn= group=

# make_group: a control group of its own, so that what the container makes is below it.
make_group() {
    local at
    at=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)
    [ -n "$at" ] || { echo "no control groups of version 2 are mounted" >"$log"; return 1; }
    group=$at$(sed -n 's/^0:://p' /proc/self/cgroup)/needled-test.$$
    mkdir -p "$group"
}
finds_leader() {
    leader=$(cat "/proc/$nspawn/task/"*/children | tr -d ' ')
    [ -n "$leader" ] && [ "$(cat "/proc/$leader/comm")" = systemd ]
}
has_booted() { case $(within systemctl is-system-running) in running | degraded) ;; *) return 1 ;; esac; }

# boot: returns when it is up; its console is in $log.
boot() {
    [ -n "$group" ] || make_group || return 1
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 exec systemd-nspawn --quiet --directory="$root" --boot --private-network \
            --register=no --keep-unit --machine="needled-$$" --console=pipe --link-journal=no --resolv-conf=off \
            --timezone=off --system-call-filter=bpf </dev/null >"$log" 2>&1
    ) &
    nspawn=$!
    wait_for 30 finds_leader 2>/dev/null && wait_for 60 has_booted 2>/dev/null
}
# cut_power: everything in it is gone at once.
cut_power() {
    [ -z "$nspawn" ] || { kill -KILL "$leader"; wait "$nspawn"; } 2>/dev/null
    leader= nspawn=
}
end_boot() {
    cut_power
    [ -z "$group" ] || find /sys/fs/cgroup -depth -type d -path "*/${group##*/}*" -exec rmdir {} +
}

# within COMMAND...: as root in the container. connected COMMAND...: a program of ours, in its network.
within() {
    nsenter -t "$leader" -a env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"
}
connected() { nsenter -t "$leader" -n "$@"; }
