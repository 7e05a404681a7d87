"""What a policy costs each open: sessions with 0, 1, 10 and 1,000 rules, in rotated order."""
import json
import os

from systems import Escrow

RULES = (0, 1, 10, 1000)


def write_policy(path, rules):
    """`rules` denials of as many kinds as people write, none of which matches the tree."""
    kinds = ("secret{0}/", "/private/{0}/**", "*.ext{0}", "/d{0}/keys/*.pem", "team/**/report{0}.*")
    written = [{"effect": "deny", "actions": ["read", "write", "create", "delete", "rename", "metadata"],
                "paths": [kinds[number % len(kinds)].format(number)]} for number in range(rules)]
    with open(path, "w", encoding="ascii") as file:
        json.dump({"default": "allow", "rules": written}, file)


class PolicedEscrow(Escrow):
    """A session with a policy of so many rules; without any, one whose opens reach the daemon as they do then."""

    def __init__(self, name, context, rules):
        super().__init__(name, context)
        self.rules = rules
        self.policy = f"{context.work}/policy-{rules}.json"

    def mount(self, *options):
        write_policy(self.policy, self.rules)
        if "--session" in options:  # it keeps the policy it was opened with
            super().mount(*options)
        else:
            super().mount(*(("--policy", self.policy) if self.rules else ("--opens", "daemon")), *options)


def measure(context, rounds, workloads, say):
    """seconds[workload][rules] = one number per round."""
    seconds = {}
    systems = [PolicedEscrow(f"rules-{rules}", context, rules) for rules in RULES]
    for turn in range(rounds):
        shift = turn % len(systems)
        for system in systems[shift:] + systems[:shift]:
            system.fresh()
            work = workloads(system, context)
            table = (("open+read+close of one file", work.open_read_close),
                     ("grep -r, first time", lambda work=work: work.cold(work.grep)),
                     ("grep -r, again", work.grep),
                     ("create+write 4 KiB+close", work.create))
            for name, workload in table:
                say(f"round {turn + 1} of {rounds}: {system.rules} rules: {name}")
                seconds.setdefault(name, {}).setdefault(str(system.rules), []).append(workload())
            system.remove()
    for rules in RULES:
        os.unlink(f"{context.work}/policy-{rules}.json")
    return seconds
