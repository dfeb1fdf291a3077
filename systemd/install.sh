#!/bin/sh
# Puts the built programs where a system looks for them, or takes them away again; by `make install` and `make
# uninstall`, and into a package by deb.sh.
#   systemd/install.sh install|uninstall OUT
# From the environment: PREFIX (/usr/local), DESTDIR (nothing), SYSCONFDIR (/etc), UNITDIR (PREFIX/lib/systemd/system),
# ZSHDIR (PREFIX/share/zsh/site-functions). State in /var/lib/needled is never touched, settings that were changed
# stay.
set -eu

action=$1 out=$2
here=$(dirname "$0")
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
sysconfdir=${SYSCONFDIR:-/etc}
unitdir=${UNITDIR:-$prefix/lib/systemd/system}
zshdir=${ZSHDIR:-$prefix/share/zsh/site-functions}
for folder in "$prefix" "$sysconfdir" "$unitdir" "$zshdir"; do
    case $folder in
    *[!A-Za-z0-9/._+~-]* | [!/]*) # a unit's ExecStart would read it as something else
        echo "install.sh: '$folder' must begin with '/' and hold only letters, digits and / . _ + ~ -" >&2
        exit 2
        ;;
    esac
done
doc=$prefix/share/doc/needled
settings=$sysconfdir/needled/needled.json

# The table of what goes where: mode, source, target.
table() {
    cat <<END
755 $out/needled $prefix/bin/needled
755 $out/needlectl $prefix/bin/needlectl
644 $here/../daemon/needled.8 $prefix/share/man/man8/needled.8
644 $here/../daemon/needled.json.5 $prefix/share/man/man5/needled.json.5
644 $here/../client/needlectl.1 $prefix/share/man/man1/needlectl.1
644 $made/bash $prefix/share/bash-completion/completions/needlectl
644 $made/zsh $zshdir/_needlectl
644 $made/fish $prefix/share/fish/vendor_completions.d/needlectl.fish
644 $made/needled.service $unitdir/needled.service
644 $made/needled.socket $unitdir/needled.socket
644 $here/needled.sysusers $prefix/lib/sysusers.d/needled.conf
644 $here/needled.tmpfiles $prefix/lib/tmpfiles.d/needled.conf
644 $here/../README.md $doc/README.md
644 $here/README.md $doc/README.systemd.md
644 $here/nginx.conf $doc/examples/nginx.conf
644 $here/drop-ins/gpu.conf $doc/examples/gpu.conf
644 $here/drop-ins/network.conf $doc/examples/network.conf
END
    [ ! -e "$out/needled-cuda.so" ] || [ -n "${WITHOUT_CUDA:-}" ] ||
        echo "644 $out/needled-cuda.so $prefix/lib/needled/needled-cuda.so"
}

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

case $action in
install)
    for shell in bash zsh fish; do "$out/needlectl" completion $shell >"$made/$shell"; done
    for unit in needled.service needled.socket; do
        sed "s|/usr/bin/|$prefix/bin/|; s|/etc/needled/|$sysconfdir/needled/|" "$here/$unit" >"$made/$unit"
    done
    table >"$made/table"
    while read -r mode source target; do
        install -D -m "$mode" "$source" "$root$target"
    done <"$made/table"
    [ -e "$root$settings" ] || install -D -m 644 "$here/needled.json" "$root$settings"
    ;;
uninstall)
    table >"$made/table"
    echo "644 - $prefix/lib/needled/needled-cuda.so" >>"$made/table"
    while read -r _ _ target; do
        rm -f "$root$target"
    done <"$made/table"
    if cmp -s "$here/needled.json" "$root$settings"; then rm "$root$settings"; fi
    for folder in "$doc/examples" "$doc" "$prefix/lib/needled" "$sysconfdir/needled"; do
        [ ! -d "$root$folder" ] || rmdir --ignore-fail-on-non-empty "$root$folder"
    done
    ;;
*)
    echo "usage: systemd/install.sh install|uninstall OUT" >&2
    exit 2
    ;;
esac
