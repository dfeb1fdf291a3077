#!/usr/bin/env bash
# clang-tidy over the files given, with the build's flags.
exec clang-tidy --quiet "$@" -- -std=c17 -D_GNU_SOURCE -I. -DNEEDLED_VERSION='"lint"' \
    $(pkg-config --cflags libcjson openblas sqlite3 libmicrohttpd libcurl nettle)
