#!/bin/sh
# Builds needled_VERSION_ARCH.deb, and needled-cuda_VERSION_ARCH.deb where OUT has the plug-in; by `make deb`.
#   systemd/deb.sh OUT VERSION
# With plain dpkg-deb: the scripts of systemd/deb do what debhelper's would. The same sources and SOURCE_DATE_EPOCH (the
# last commit's time unless set) give the same bytes.
set -eu
umask 022

out=$1 version=$2
here=$(dirname "$0")
arch=$(dpkg --print-architecture)
stage=$out/deb
maintainer=${DEB_MAINTAINER:-$(git log -1 --format='%an <%ae>' 2>/dev/null || echo 'needled <root@localhost>')}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

# libraries FILE...: the packages of the libraries these were linked with, as the value of Depends.
libraries() {
    rm -rf "$stage/shlibs" && mkdir -p "$stage/shlibs/debian"
    echo "Source: needled" >"$stage/shlibs/debian/control"
    paths=
    for file in "$@"; do paths="$paths $(realpath "$file")"; done
    # shellcheck disable=SC2086 # several words
    (cd "$stage/shlibs" && dpkg-shlibdeps -O --ignore-missing-info $paths 2>/dev/null) |
        sed -n 's/^shlibs:Depends=//p'
}

# documents FOLDER PACKAGE: what Debian wants of every package.
documents() {
    install -D -m 644 "$here/deb/copyright" "$1/usr/share/doc/$2/copyright"
    {
        printf 'needled (%s) unstable; urgency=medium\n\n' "$version"
        printf '  * See NEWS.md.gz in the documentation of needled.\n'
        printf '\n -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$1/usr/share/doc/$2/changelog.gz"
}

# finish FOLDER PACKAGE DEPENDS: control files, times, the package.
finish() {
    folder=$1 package=$2
    mkdir -p "$folder/DEBIAN"
    sed -e "s|@VERSION@|$version|; s|@ARCH@|$arch|; s|@MAINTAINER@|$maintainer|; s|@DEPENDS@|$3|" \
        -e "s|@SIZE@|$(du -k -s --apparent-size "$folder" | cut -f1)|" "$here/deb/$package.control" >"$folder/DEBIAN/control"
    for script in postinst prerm postrm; do
        [ ! -e "$here/deb/$package.$script" ] || install -m 755 "$here/deb/$package.$script" "$folder/DEBIAN/$script"
    done
    if [ -d "$folder/etc" ]; then (cd "$folder" && find etc -type f | sed 's|^|/|') >"$folder/DEBIAN/conffiles"; fi
    (cd "$folder" && find . -type f ! -path './DEBIAN/*' -printf '%P\n' | LC_ALL=C sort | xargs md5sum) >"$folder/DEBIAN/md5sums"
    find "$folder" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group --uniform-compression -Zxz --build "$folder" "$out/${package}_${version}_$arch.deb"
}

rm -rf "$stage"
main=$stage/needled
WITHOUT_CUDA=1 PREFIX=/usr DESTDIR=$main UNITDIR=/lib/systemd/system ZSHDIR=/usr/share/zsh/vendor-completions \
    "$here/install.sh" install "$out"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$main/usr/bin/needled" "$main/usr/bin/needlectl"
find "$main/usr/share/man" -type f -exec gzip -9n {} +
install -D -m 644 "$here/../daemon/CHANGELOG.md" "$main/usr/share/doc/needled/NEWS.md"
gzip -9n "$main/usr/share/doc/needled/NEWS.md"
documents "$main" needled
finish "$main" needled "$(libraries "$main/usr/bin/needled" "$main/usr/bin/needlectl")"

if [ -e "$out/needled-cuda.so" ]; then
    cuda=$stage/needled-cuda
    install -D -m 644 "$out/needled-cuda.so" "$cuda/usr/lib/needled/needled-cuda.so"
    strip --strip-unneeded "$cuda/usr/lib/needled/needled-cuda.so"
    install -D -m 644 "$here/drop-ins/gpu.conf" "$cuda/lib/systemd/system/needled.service.d/gpu.conf"
    documents "$cuda" needled-cuda
    finish "$cuda" needled-cuda "$(libraries "$cuda/usr/lib/needled/needled-cuda.so")"
fi
rm -rf "$stage"
