"""shim: the table that support/shims/faults.c and a test share, and the daemon that maps it."""
import functools
import mmap
import os
import struct
import subprocess
import sys

KINDS = ["write", "sync", "rename", "create", "resize", "memory", "step"]  # as enum kind has them
PLACE = "place"
FRAMES, TARGETS, PLACES, MODULES, MODULE_NAME = 10, 64, 16384, 64, 120
ARMED, KIND, NTH, NUMBER, IN_A_ROW, FIRED, STAGE, KEEPS = range(8)
COUNTS = 8
TARGET_COUNT = COUNTS + len(KINDS)
FIRST_TARGET, TARGET_WORDS = TARGET_COUNT + 1, 5
FIRST_PLACE, PLACE_WORDS = FIRST_TARGET + TARGETS * TARGET_WORDS, 3 + FRAMES
FIRST_MODULE = FIRST_PLACE + PLACES * PLACE_WORDS
NAMES = 8 * (FIRST_MODULE + MODULES)
BYTES = NAMES + MODULES * MODULE_NAME
FOREVER = 1 << 62


class Shim:
    def __init__(self, path):
        self.path = path
        with open(path, "w+b") as file:
            file.truncate(BYTES)
            self.map = mmap.mmap(file.fileno(), BYTES)

    def word(self, at):
        return int.from_bytes(self.map[8 * at:8 * at + 8], sys.byteorder)

    def set(self, at, number):
        self.map[8 * at:8 * at + 8] = number.to_bytes(8, sys.byteorder)

    def ask(self, kind, nth, number, in_a_row):
        """The nth call of that kind fails; None: none does, they are counted."""
        for at, word in ((KIND, KINDS.index(kind) if kind else 99), (NTH, nth), (NUMBER, number),
                         (IN_A_ROW, in_a_row)):
            self.set(at, word)

    def ask_places(self, targets):
        """[(hash, nth, in a row)]; none of them: places are written down."""
        self.set(KIND, len(KINDS))
        self.set(KEEPS, int(not targets))
        for at, target in enumerate(targets):
            for word, number in enumerate(target):
                self.set(FIRST_TARGET + at * TARGET_WORDS + word, number)
        self.set(TARGET_COUNT, len(targets))

    def targets_fired(self):
        return [self.word(FIRST_TARGET + at * TARGET_WORDS + 4) for at in range(self.word(TARGET_COUNT))]

    def arm(self):
        self.set(ARMED, 1)

    def disarm(self):
        self.set(ARMED, 0)

    def fired(self):
        return self.word(FIRED)

    def counts(self):
        return {kind: self.word(COUNTS + at) for at, kind in enumerate(KINDS)}

    def places(self):
        """{hash: (stage it was first seen in, how often, [(module, address in it)])}"""
        found = {}
        for at in range(PLACES):
            begin = 8 * (FIRST_PLACE + at * PLACE_WORDS)
            value, stage, count, *frames = struct.unpack_from(f"={PLACE_WORDS}Q", self.map, begin)
            if value:
                found[value] = (stage, count, [(self.module(f >> 48), f & 0xffffffffffff) for f in frames if f])
        return found

    def module(self, number):
        name = self.map[NAMES + number * MODULE_NAME:NAMES + (number + 1) * MODULE_NAME]
        return name.split(b"\0")[0].decode() or "needled"

    def close(self):
        self.map.close()


def environment_for(out, program, shim):
    before = os.path.join(out, "shims/faults.so")
    runtime = sanitizer_of(program)
    return dict(os.environ, FAULTS_SHIM=str(shim.path), LD_PRELOAD=f"{runtime}:{before}" if runtime else before)


@functools.lru_cache
def sanitizer_of(program):
    """Its library, which wants to come first; None without."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for line in text.splitlines():
        if "libasan" in line or "libtsan" in line:
            return line.split("=>")[1].split()[0]
    return None


def name_frames(program, frames):
    """Functions, as addr2line has them; the address is behind the call."""
    names = []
    for module, address in frames:
        path = program if module == "needled" else module
        text = subprocess.run(["addr2line", "-Cfe", path, hex(address - 1)], capture_output=True, text=True)
        lines = text.stdout.splitlines() or ["??"]
        place = os.path.basename(lines[1]).split(" ")[0] if len(lines) > 1 and "?" not in lines[1] else \
            f"{os.path.basename(path)}+{address:#x}"
        names.append(f"{lines[0]} ({place})")
    return names
