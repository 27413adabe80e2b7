"""A request that is valid by the document is accepted, unless it breaks a rule that the document does not state."""

import schemathesis
from schemathesis.specs.openapi.checks import positive_data_acceptance

# A part of the error's text for each rule, and the reason why JSON Schema cannot state the rule.
RULES = {
    "is not a cursor of this list": "a cursor is opaque",
    "permissions_query_syntax": "a permission query is a language",
    "names an unknown resource or action": "the pattern of a grant has its form; the list of all grants is in words",
    "repeats ": "limits of a list differ by name, and uniqueItems compares whole items",
    "appears twice in the call": "keys of a call differ by hash, and uniqueItems compares whole items",
    "is allowed for monthly refills only": "`refillDay` depends on `interval`",
    "needs a balance": "`refill` depends on `remaining`",
    "is after end": "`start` is compared with `end`, or with the time",
    "results in more than": "`granularity` depends on `start` and `end`",
    "increases the balance above": "depends on the balance of the key",
    "an unlimited key": "depends on the balance of the key",
    "Neither the key nor its identity has a limit named": "depends on the limits of the key",
    "the last enabled root key": "depends on the other root keys",
    "X-Tollgate-Limits": "the header holds a list with a syntax of its own",
}


@schemathesis.check
def valid_data_is_accepted(ctx, response, case):
    if response.status_code in (400, 412) and any(rule in response.text for rule in RULES):
        return
    positive_data_acceptance(ctx, response, case)


@schemathesis.hook
def filter_case(context, case):
    # Unknown headers are never refused, because a gateway may pass on those of the end user.
    if "x-schemathesis-unknown-property" in case.headers:
        return False
    # An empty header counts as absent, as the description states.
    return case.path != "/v2/gateway/check" or "" not in case.headers.values()
