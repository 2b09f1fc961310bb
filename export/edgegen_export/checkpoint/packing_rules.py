"""PackingRules: GPTQModel's ``dynamic``, which says of some modules how they are packed, by regular expressions.

The first expression that a module's name begins with decides. After ``-:`` it names modules that are not quantized;
after ``+:``, or nothing, those that have settings of their own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from edgegen.errors import OptionError, suggestions
from edgegen.stop_regex import StopRegex, StopRegexMatcher

MOST_RULES = 1000
_MOST_SEARCHED = 64
"""Expressions that ``re`` is not trusted with, each of which costs much more for a name."""

_LEFT_OUT, _CHANGED = "-:", "+:"
_QUICK = re.compile(r"(?:[\w-]|\\[.d]|\.\*?|\[[\w-]+\])+\$?")
_MOST_STARS = 3
"""Expressions of this shape, with at most this many stars, cost ``re`` little in a name."""

_READ = ("bits", "group_size", "sym", "pack_dtype")
_NEUTRAL = (
    "act_group_aware",
    "damp_auto_increment",
    "damp_percent",
    "desc_act",  # the tensors say it: g_idx
    "mse",
    "static_groups",
    "true_sequential",
)
"""Keys that say how codes were found."""


@dataclass(frozen=True, slots=True)
class PackingRule:
    """``settings``: what differs for the modules whose names begin with a match of ``pattern``; None: they are not
    quantized."""

    pattern: str
    settings: Mapping[str, Any] | None

    @property
    def is_quick(self) -> bool:
        return _QUICK.fullmatch(self.pattern) is not None and self.pattern.count("*") <= _MOST_STARS

    def names(self, module: str) -> bool:
        """Whether the rule is of ``module``, in time that is linear in the name."""
        if self.is_quick:
            return re.match(self.pattern, module) is not None
        matcher = StopRegexMatcher(StopRegex.of(_at_start(self.pattern)))
        return (matcher.push(module) or matcher.finish()) is not None


def read_rules(dynamic: object, name: str) -> tuple[PackingRule, ...] | list[str]:
    """The rules in ``dynamic``, which messages call ``name``, or everything in it that is not read."""
    if not dynamic:
        return ()
    if not isinstance(dynamic, Mapping):
        return [f"{name}: an object of regular expressions expected, found {dynamic!r}"]
    entries = cast(Mapping[str, object], dynamic)
    if len(entries) > MOST_RULES:
        return [f"{name}: at most {MOST_RULES} regular expressions expected, found {len(entries)}"]
    rules, problems = list[PackingRule](), list[str]()
    for key, value in entries.items():
        if value is not None and not isinstance(value, Mapping):
            problems.append(f"{name}[{key!r}] = {value!r}: an object expected")
            continue
        settings = cast(Mapping[str, Any], value or {})
        left_out = key.startswith(_LEFT_OUT)
        rule = PackingRule(key.removeprefix(_LEFT_OUT if left_out else _CHANGED), None if left_out else settings)
        problems += _problems(rule, f"{name}[{key!r}]")
        rules.append(rule)
    if (searched := sum(not rule.is_quick for rule in rules)) > _MOST_SEARCHED:
        problems.append(
            f"{name}: {searched} expressions have groups, alternatives or more than {_MOST_STARS} repetitions, and at "
            f"most {_MOST_SEARCHED} may"
        )
    return problems or tuple(rules)


def _problems(rule: PackingRule, name: str) -> list[str]:
    problems = list[str]()
    try:
        re.compile(rule.pattern)
        if not rule.is_quick:
            StopRegex.of(_at_start(rule.pattern))
    except re.error as error:
        problems.append(f"{name}: not a regular expression ({error})")
    except (RecursionError, OverflowError):
        problems.append(f"{name}: it is nested or repeated too much")
    except OptionError as error:
        problems.append(f"{name}: cannot be used ({str(error).rstrip('.')})")
    known = (*_READ, *_NEUTRAL)
    strange = sorted(key for key, value in (rule.settings or {}).items() if key not in known and value is not None)
    problems += [
        f"{name}.{key}: not understood, and it may change the result{near}"
        for key, near in zip(strange, suggestions(strange, known), strict=True)
    ]
    return problems


def _at_start(pattern: str) -> str:
    return rf"\A(?:{pattern})"
