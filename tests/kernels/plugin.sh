#!/usr/bin/env bash
# Loading the plug-in and looking for cards, in every kind of surroundings: "ok - what", "not ok - what".
#   tests/kernels/plugin.sh OUT
set -uo pipefail
out=$(realpath "${1:?usage: tests/kernels/plugin.sh OUT}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH NEEDLED_CUBLAS

# expect WHAT PATTERN VARIABLE=VALUE...: whether what show_cuda prints then matches.
expect() {
    local what=$1 pattern=$2 said
    shift 2
    said=$(timeout 60 env "$@" "$out/show_cuda" 2>&1)
    if [[ $said =~ $pattern ]]; then
        echo "ok - $what"
    else
        printf 'not ok - %s\n  wanted: %s\n  said: %s\n' "$what" "$pattern" "$said"
    fi
}

# ---- the loader ----------------------------------------------------------------------------------

expect "a folder without the file" '^0 devices: needled-cuda.so is not installed$' NEEDLED_PLUGINS="$folder"
echo "not a library" >"$folder/needled-cuda.so"
expect "a file that is no library" '^0 devices: needled-cuda.so does not load: ' NEEDLED_PLUGINS="$folder"
cp "$out/fakes/libnvidia-ml.so.1" "$folder/needled-cuda.so"
expect "a library that is no plug-in" 'not a plug-in: it has no function needled_plugin$' NEEDLED_PLUGINS="$folder"
cp "$out/fakes/old_plugin.so" "$folder/needled-cuda.so"
expect "a plug-in of another version" 'of another version: its interface is number [0-9]+ \(0 and 0 bytes\), needed is [0-9]+ \(' \
    NEEDLED_PLUGINS="$folder"
cp "$out/fakes/other_table.so" "$folder/needled-cuda.so"
expect "one whose tables are of another size, with both sizes" \
    'of another version: its interface is number [0-9]+ \([0-9]+ and [0-9]+ bytes\), needed is [0-9]+ \([0-9]+ and [0-9]+\)$' \
    NEEDLED_PLUGINS="$folder"
rm "$folder/needled-cuda.so"
plugin_bytes=$(stat -Lc %s "$out/plugins/needled-cuda.so")
for share in 25 50 75 99; do
    head -c $((plugin_bytes * share / 100)) "$out/plugins/needled-cuda.so" >"$folder/needled-cuda.so"
    expect "one of which $share in a hundred bytes are there" 'needled-cuda.so does not load: its end is missing$' \
        NEEDLED_PLUGINS="$folder"
done
head -c 40 "$out/plugins/needled-cuda.so" >"$folder/needled-cuda.so"
expect "one without a whole header" 'needled-cuda.so does not load: ' NEEDLED_PLUGINS="$folder"
: >"$folder/needled-cuda.so"
expect "an empty one" 'needled-cuda.so does not load: ' NEEDLED_PLUGINS="$folder"
rm "$folder/needled-cuda.so" && mkfifo "$folder/needled-cuda.so"
expect "a pipe in its place" 'needled-cuda.so does not load: it is no regular file$' NEEDLED_PLUGINS="$folder"
rm "$folder/needled-cuda.so"
cp "$out/show_cuda" "$folder/show_cuda"
cp "$out/plugins/needled-cuda.so" "$folder/needled-cuda.so"
if [ "$(env -u NEEDLED_PLUGINS "$folder/show_cuda" | head -n 1)" = "1 devices" ]; then
    echo "ok - the file beside the program is found"
else
    echo "not ok - the file beside the program is found"
fi
mkdir -p "$folder/bin" "$folder/lib/needled"
mv "$folder/show_cuda" "$folder/bin" && mv "$folder/needled-cuda.so" "$folder/lib/needled"
if [ "$(env -u NEEDLED_PLUGINS "$folder/bin/show_cuda" | head -n 1)" = "1 devices" ]; then
    echo "ok - the file in lib/needled is found"
else
    echo "not ok - the file in lib/needled is found"
fi

# ---- what is told of a card: the stand-in's ------------------------------------------------------

standin=NEEDLED_PLUGINS=$out/plugins
expect "two cards, their memory, no temperature" \
    $'^2 devices\ncuda:0: Stand-in 0; GPU-01000000-0000-0000-0000-000000000000; capability 9.0; driver CUDA 13.0; cuBLAS 13.0.0; precisions 7; 2097152 bytes, [0-9]+ free; 0 C, 0 W\n.*cuda:1: Stand-in 1; GPU-02' \
    "$standin" STANDIN_DEVICES=2 STANDIN_MEMORY=2097152
expect "what is needed and free when memory runs out" \
    'cuda:0: out of memory: 1099511627776 bytes needed, [0-9]{7} free' "$standin" STANDIN_MEMORY=2097152
expect "no cards" '^0 devices: an NVIDIA driver, but no device$' "$standin" STANDIN_DEVICES=0
expect "cards that are hidden" "^0 devices: no device: CUDA_VISIBLE_DEVICES is ''\$" "$standin" STANDIN_DEVICES=0 \
    CUDA_VISIBLE_DEVICES=
expect "temperature, power and the driver's version" 'driver 580.65.06, CUDA 13.0.*; 41 C, 120 W' \
    "$standin" LD_LIBRARY_PATH="$out/fakes"
expect "of a slice of a card: its own name and memory, its card's temperature and power" \
    '; MIG-01000000-0000.*; 2097152 bytes, .*; 41 C, 120 W' \
    "$standin" LD_LIBRARY_PATH="$out/fakes" FAKE_MIG=1 STANDIN_MEMORY=2097152
expect "a management library that does not start" '; driver CUDA 13.0;.*; 0 C, 0 W' \
    "$standin" LD_LIBRARY_PATH="$out/fakes" FAKE_NVML=broken
expect "one that tells nothing of its devices" '; driver 580.65.06, .*; 0 C, 0 W' \
    "$standin" LD_LIBRARY_PATH="$out/fakes" FAKE_NVML=mute
expect "cuBLAS that is switched off: float32 alone" \
    "; needled-cuda: NEEDLED_CUBLAS is 'none': own kernels multiply; precisions 1;" "$standin" NEEDLED_CUBLAS=none
expect "a missing cuBLAS" '; needled-cuda: /nowhere/libcublas.so.13 was not found: own kernels multiply; precisions 1;' \
    "$standin" NEEDLED_CUBLAS=/nowhere/libcublas.so.13
expect "a cuBLAS without our functions" 'has no function cublasCreate_v2: own kernels multiply' \
    "$standin" NEEDLED_CUBLAS="$out/fakes/libnvidia-ml.so.1"
expect "a cuBLAS that is no library" 'needled-cuda: .*: own kernels multiply' "$standin" NEEDLED_CUBLAS="$0"
expect "a card that is too old, beside one that will do" \
    $'cuda:0: Stand-in 0 has capability 7.0, needed is 7.5\ncuda:0: not opened: .*7.0.*\ncuda:1: Stand-in 1; .*; [0-9]+ bytes, [1-9]' \
    "$standin" STANDIN_DEVICES=2 STANDIN_OLD=0
expect "a card that does not answer, beside one that does" \
    $'cuda:0: the device does not answer: cuda.*\ncuda:0: not opened: .*\ncuda:1: Stand-in 1; .*; [0-9]+ bytes, [1-9]' \
    "$standin" STANDIN_DEVICES=2 STANDIN_MUTE=0

# ---- the real plug-in and runtime, over drivers that are not there or will not do ----------------

if [ ! -e "$out/needled-cuda.so" ]; then
    echo "skip - the real plug-in: nvcc is not installed"
    exit 0
fi
plugin=$out/needled-cuda.so
needed=$(readelf -d "$plugin" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vxE 'lib(c|m|dl|pthread|rt|gcc_s)\.so\.[0-9]+|ld-linux.*')
if [ -z "$needed" ]; then
    echo "ok - it needs the C library alone ($(($(stat -Lc %s "$plugin") / 1024)) KB)"
else
    echo "not ok - it needs the C library alone: $needed"
fi
exported=$(nm -D --defined-only "$plugin" | awk '{ print $3 }')
if [ "$exported" = needled_plugin ]; then
    echo "ok - it exports one function"
else
    printf 'not ok - it exports one function: %s\n' "$exported"
fi
# Measured 0.3 ms; cuBLAS loaded too early takes 300 ms and more. The least of ten: the machine may be busy.
least_us=$(for _ in 1 2 3 4 5 6 7 8 9 10; do "$out/time_plugin" "$plugin"; done | sort -n | sed -n '1s/ us:.*//p')
if [ "$(env -u LD_LIBRARY_PATH "$out/show_cuda" | head -c 2)" != "0 " ]; then
    echo "skip - how long it takes to load: this machine has a card"
elif [ "${least_us:-99999}" -lt 10000 ]; then
    echo "ok - it loads and finds no card within 10 ms ($least_us us)"
else
    echo "not ok - it loads and finds no card within 10 ms: ${least_us:-it does not load} us"
fi

real=NEEDLED_PLUGINS=$out
fake=LD_LIBRARY_PATH=$out/fakes
if [ "$("$out/show_cuda" | head -c 2)" = "0 " ]; then
    expect "no driver" '^0 devices: no NVIDIA driver: libcuda.so.1 was not found$' "$real"
else
    echo "skip - no driver: this machine has one"
fi
expect "the toolkit's stub" "^0 devices: libcuda.so.1 is the toolkit's stub, not a driver\$" "$real" "$fake" FAKE_CUINIT=34
expect "a driver that is too old, with both versions" '^0 devices: the NVIDIA driver is for CUDA 12.4, needed is 13.[0-9]$' \
    "$real" "$fake" FAKE_VERSION=12040
expect "a driver without a device" '^0 devices: an NVIDIA driver, but no device$' "$real" "$fake"
expect "a driver whose device is hidden" "^0 devices: no device: CUDA_VISIBLE_DEVICES is '7'\$" "$real" "$fake" \
    CUDA_VISIBLE_DEVICES=7
for visible in '' GPU-01000000-0000-0000-0000-000000000000 MIG-01000000-0000-0000-0000-000000000000; do
    expect "one that is hidden by '$visible'" "^0 devices: no device: CUDA_VISIBLE_DEVICES is '$visible'\$" \
        "$real" "$fake" CUDA_VISIBLE_DEVICES="$visible"
done
expect "a driver unlike its kernel module" 'differ in version' "$real" "$fake" FAKE_CUINIT=803
expect "a driver that is not ready" 'is not ready' "$real" "$fake" FAKE_CUINIT=802
expect "a driver with an unknown fault" '^0 devices: cudaErrorUnknown: unknown error$' "$real" "$fake" FAKE_CUINIT=999
