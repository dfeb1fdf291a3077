"""What schemathesis is told of the daemon beyond its description: tests/http/test_description.py names it and sets
NEEDLED_KNOWN, ids of things that are there."""

import itertools
import json
import os

import schemathesis

KNOWN = json.loads(os.environ["NEEDLED_KNOWN"])
turns = itertools.count()

# A request may fit the schema and be refused all the same, since it names what is not there or has fields that do not
# go together. These are all the fields of which that is so; any other refusal of what fits the schema is a fault.
NAMES_THINGS = {
    "after", "file", "model", "training_file", "training_files", "validation_file", "validation_files", "test_files",
    "device", "before", "url",
}
GO_TOGETHER = {
    "learning_rate_multiplier", "overlong", "hyperparameters", "max_len", "max_depth", "metadata", "name",
}
# schemathesis mixes the two shapes of a create (oneOf) and takes the result for one that fits.
MIXED = "does not go with"


def fits(case):
    return case.meta is not None and case.meta.generation.mode.is_positive


@schemathesis.hook
def before_call(context, case, kwargs):
    """Every second request that only looks, and fits, is about something that is there. A stream of events is asked
    for as a page, since a stream need not end (test_streams.py follows them)."""
    if case.operation.path.endswith("/events"):
        if str((case.query or {}).get("stream")).lower() == "true":
            case.query["stream"] = "false"
        if case.headers:
            case.headers.pop("Accept", None)
    if case.operation.method.upper() == "GET" and fits(case) and next(turns) % 2:
        for name in KNOWN.keys() & (case.path_parameters or {}).keys():
            case.path_parameters[name] = KNOWN[name]


@schemathesis.check
def refusals_say_what_is_wrong(context, response, case):
    if response.status_code < 400:
        return
    error = response.json()["error"] if case.method != "HEAD" else {"message": "-", "code": "-", "param": ""}
    assert error["message"] and error["code"], error
    if response.status_code == 400 and fits(case) and "NUL" not in error["message"]:
        assert error["param"] in NAMES_THINGS | GO_TOGETHER or MIXED in error["message"], error
