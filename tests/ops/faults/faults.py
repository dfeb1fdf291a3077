#!/usr/bin/env python3
"""faults: the nth write, sync, rename, step of SQLite, ... of a story fails, for every n or for some.

    faults.py OUT [--kinds write,sync,...] [--sample N --seed S] [--stride N] [--first N] [--turn N] [--jobs N]
              [--in-a-row K] [--sticky] [--minutes M]

story.py has the story and what must hold; a shim (tests/support/shims/faults.c) makes the call fail, or the next K
(--in-a-row), or all from it on (--sticky: the disk is full, and has room again after a while). The reasons that a
kind can have take turns; --turn begins with another.

Kind `place` is every place in the program and its libraries that allocates, told apart by the last ten calls: its
first allocation fails, and of every other place the first with those after it in the same thread (IN_A_ROW). A run
has a few places for each part of the story; where it breaks, those that do it are looked for. Kind `memory` is every
allocation by its number.

Prints a line of figures for each kind, "ok - ..." lines and "N passed, N failed"; status 1 when something does not
hold. --minutes bounds it: points that there was no time for are counted and told.
"""
import argparse
import collections
import concurrent.futures
import errno
import random
import sys
import time

from shim import FOREVER, KINDS, PLACE, TARGETS, name_frames
from story import TRIES, Broken, Listener, Story

SQLITE = {"SQLITE_IOERR_WRITE": 778, "SQLITE_FULL": 13, "SQLITE_NOMEM": 7, "SQLITE_BUSY": 5, "SQLITE_IOERR_READ": 266}
NUMBERS = {"write": ["ENOSPC", "EIO"], "sync": ["EIO", "ENOSPC"], "rename": ["ENOSPC", "EIO"],
           "create": ["ENOSPC", "EROFS"], "resize": ["ENOSPC", "EIO"], "memory": ["ENOMEM"], "step": list(SQLITE)}
USUAL = ["sync", "rename", "create", "resize", "step", PLACE, "write"]
IN_A_ROW = (2, 8)
UNCHECKED = "libopenblas"  # its small products use what they allocate without a look: the daemon dies as of any crash
ROUNDS = ((24, 4), (3, 1))  # targets in a run: of the start, of each other part; the second for those not reached
SHOWN = 12  # broken points


def number_of(name):
    return SQLITE.get(name) or getattr(errno, name)


class Teller:
    """Tells stories; each with its own faults."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.listener = Listener()
        self.wanted = None  # the adapter's digest
        self.deadline = time.monotonic() + 60 * arguments.minutes

    def undisturbed(self, prepare):
        """What `look` finds in the table after a story without a fault."""
        story = Story(self.arguments.out, self.listener)
        try:
            prepare(story.shim)
            story.tell(self.wanted)
            if story.refused:
                raise Broken(f"without a fault: {story.refused}")
            counts, places = story.shim.counts(), story.shim.places()
            story.check_truth(self.wanted)
            story.daemon.start_with(False)
            story.daemon.wait_until_served(story.client, 60)
            self.wanted = story.adapter()
            return counts, places
        finally:
            story.close()

    def tell(self, memory, prepare, at_start=0, further=0):
        """(outcome, text, targets that failed): not reached, mended, refused, ..., BROKEN."""
        if time.monotonic() > self.deadline:
            return "without time", "", []
        story = Story(self.arguments.out, self.listener, memory, self.arguments.sticky)
        try:
            story.at_start, story.tries = at_start, TRIES + further
            prepare(story.shim)
            story.tell(self.wanted)
            fired, targets = story.shim.fired(), story.shim.targets_fired()
            refused = story.refused
            story.check_truth(self.wanted)
            return outcome_of(fired, refused), ", ".join(sorted(set(refused))), targets
        except Exception as error:  # whatever is not as it should be
            log = [line[:200] for line in story.daemon.log.read_text(errors="replace").splitlines()[-6:]]
            text = f"{error!r:.500}; refused {collections.Counter(story.refused)}\n" + "\n".join("    " + line for line in log)
            return "BROKEN", text, story.shim.targets_fired()
        finally:
            story.close()


def outcome_of(fired, refused):
    if not fired:
        return "not reached"
    if "start" in refused:
        return "start refused"
    if any(text.startswith("job failed") for text in refused):
        return "job failed"
    return "request refused" if refused else "mended"


# ---- by number ------------------------------------------------------------------------------------------


def points_of(kind, count, arguments, chance):
    names = NUMBERS[kind]
    every = [(nth, names[(nth + arguments.turn) % len(names)])
             for nth in range(arguments.first, count + 1, arguments.stride)]
    if arguments.sample:
        every = chance.sample(every, min(len(every), max(1, arguments.sample // len(arguments.kinds))))
    chance.shuffle(every)  # those that there is time for are from everywhere
    return every


def tell_numbers(teller, kind, points, pool):
    arguments = teller.arguments
    in_a_row = FOREVER if arguments.sticky else arguments.in_a_row
    tally, broken = collections.Counter(), []

    def tell(point):
        nth, name = point
        return teller.tell(kind == "memory" or name == "SQLITE_NOMEM",
                           lambda shim: shim.ask(kind, nth, number_of(name), in_a_row),
                           0, arguments.in_a_row - 1)
    for (nth, name), (outcome, text, _) in zip(points, pool.map(tell, points)):
        tally[outcome] += 1
        if outcome == "BROKEN":
            broken.append(f"{kind} {nth} {name}: {text}")
            show(broken)
    return tally, broken


# ---- by place -------------------------------------------------------------------------------------------


def packs_of(places, targets, at_start, elsewhere):
    """Lists of targets that hardly get in each other's way: so many of the start, so many of each other part of the
    story; those of the start come first."""
    stages = collections.defaultdict(list)
    for target in targets:
        stages[places[target[0]][0]].append(target)
    packs = []
    while any(stages.values()):
        pack = []
        for stage in sorted(stages):
            for _ in range(at_start if stage == 0 else elsewhere):
                if stages[stage] and len(pack) < TARGETS:
                    pack.append(stages[stage].pop())
        packs.append(pack)
    return packs


def targets_of(places):
    """Each place's first allocation, and of every other place that and those after it."""
    return [(place, 1, 1) for place in places] + \
        [(place, 1, IN_A_ROW[at % len(IN_A_ROW)]) for at, place in enumerate(sorted(places)[::2])]


def find_guilty(tell, pack, text):
    """[(targets, text)]: the smallest lists that break a run."""
    if len(pack) == 1:
        return [(pack, text)]
    halves = [(half, tell(half)) for half in (pack[:len(pack) // 2], pack[len(pack) // 2:])]
    found = [find_guilty(tell, half, answer[1]) for half, answer in halves if answer[0] == "BROKEN"]
    return sum(found, []) or [(pack, text)]


def tell_places(teller, places, targets, pool):
    """Counts targets; of a run that broke those that do it, too, without the others."""
    tally, broken = collections.Counter(), []

    def tell(pack):
        at_start = sum(places[target[0]][0] == 0 for target in pack)
        return teller.tell(True, lambda shim: shim.ask_places(pack), at_start, sum(k - 1 for _, _, k in pack))

    def frames_of(target):
        return name_frames(f"{teller.arguments.out}/needled", places[target[0]][2])

    def is_library_end(targets, text):
        return "ended" in text and "-11" in text and all(UNCHECKED in frames_of(target)[0] for target in targets)

    def name(target):
        frames = frames_of(target)
        return f"  place {target[0]:#x} nth {target[1]} in a row {target[2]}: " + " < ".join(frames)
    for at_start, elsewhere in ROUNDS:
        packs, left = packs_of(places, targets, at_start, elsewhere), []
        print(f"# {len(places)} places, {len(targets)} targets in {len(packs)} runs", flush=True)
        for pack, (outcome, text, fired) in zip(packs, pool.map(tell, packs)):
            tally[outcome if outcome == "without time" else "failed"] += sum(map(bool, fired))
            if outcome == "BROKEN":
                for guilty, reason in find_guilty(tell, [t for t, times in zip(pack, fired) if times] or pack, text):
                    if is_library_end(guilty, reason):
                        tally[f"ended by {UNCHECKED}"] += len(guilty)
                        continue
                    tally["BROKEN"] += 1
                    broken.append("\n".join([reason] + [name(target) for target in guilty[:4]]))
                    show(broken)
            elif outcome == "without time":
                tally[outcome] += len(pack)
            else:
                left += [target for target, times in zip(pack, fired) if not times]
        targets = left
    tally["not reached"] = len(targets)
    return tally, broken


# ---- what is printed --------------------------------------------------------------------------------------


def show(broken):
    if len(broken) <= SHOWN:
        print("# " + broken[-1].replace("\n", "\n#   "), flush=True)


def report(kind, tally, broken, took_s):
    print(f"# {kind}: {sum(tally.values())} points in {took_s:.0f} s, " +
          ", ".join(f"{n} {outcome}" for outcome, n in sorted(tally.items())))
    print(f"{'not ok' if broken else 'ok'} - after a failed {kind} all that was answered is true", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=USUAL)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--turn", type=int, default=0)
    parser.add_argument("--in-a-row", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--sticky", action="store_true")
    teller = Teller(parser.parse_args())
    arguments = teller.arguments

    try:
        counts, _ = teller.undisturbed(lambda shim: shim.ask(None, 0, 0, 0))
    except Broken as error:
        print(f"not ok - the undisturbed story: {error}")
        return 1
    print("# calls in an undisturbed story: " + ", ".join(f"{kind} {n}" for kind, n in counts.items()), flush=True)
    chance = random.Random(arguments.seed)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for kind in arguments.kinds:
            began = time.monotonic()
            if kind == PLACE:
                places = teller.undisturbed(lambda shim: shim.ask_places([]))[1]
                targets = targets_of(places)
                chance.shuffle(targets)
                if arguments.sample:
                    targets = chance.sample(targets, min(len(targets), arguments.sample))
                tally, broken = tell_places(teller, places, targets, pool)
            else:
                tally, broken = tell_numbers(teller, kind, points_of(kind, counts[kind], arguments, chance), pool)
            report(kind, tally, broken, time.monotonic() - began)
            failed += bool(broken)
    print(f"{len(arguments.kinds) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
