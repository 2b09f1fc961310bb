"""A template is a stranger's program: what it may do, and what stops it."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from edgegen.chat.limits import TemplateLimits
from edgegen.chat.sandbox import SandboxedTemplate
from edgegen.errors import ChatTemplateError, ConversationError

DOUBLING = "{% set n = namespace(x=SEED) %}{% for i in range(60) %}{% set n.x = STEP %}{% endfor %}{{ n.x }}"
NESTED = DOUBLING.replace("SEED", "['a']")
TEN_MILLION = "{% set t = 'aaaaaaaaaa' * 1000000 %}"

HOSTILE = {
    "power": "{{ 9 ** (9 ** 9) }}",
    "squares": DOUBLING.replace("SEED", "10").replace("STEP", "n.x * n.x"),
    "negative power": "{{ 2 ** -100000 }}",
    "round": "{{ 5 | round(-1000000000, 'ceil') }}",
    "text times": "{{ 'a' * 1000000000 }}",
    "times text": "{{ 1000000000 * 'a' }}",
    "list times": "{{ [0] * 1000000000 }}",
    "doubled text": DOUBLING.replace("SEED", "'a'").replace("STEP", "n.x + n.x"),
    "doubled by ~": DOUBLING.replace("SEED", "'a'").replace("STEP", "n.x ~ n.x"),
    "doubled by a block": "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set x %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = x %}{% endfor %}",
    "doubled list": DOUBLING.replace("SEED", "[1]").replace("STEP", "n.x + n.x"),
    "nested lists": NESTED.replace("STEP", "[n.x, n.x]"),
    "nested tuples": NESTED.replace("STEP", "(n.x, n.x)"),
    "nested dicts": NESTED.replace("STEP", "{'a': n.x, 'b': n.x}"),
    "nested dict()": NESTED.replace("STEP", "dict(a=n.x, b=n.x)"),
    "nested arguments": "{% set n = namespace(x='a') %}{% macro m() %}{% set n.x = varargs %}{% endmacro %}"
    "{% for i in range(60) %}{{ m(n.x, n.x) }}{% endfor %}{{ n.x }}",
    "nested and compared": "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
    "{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
    "% width": "{{ '%1000000000d' % 1 }}",
    "% argument width": "{{ '%*d' % (1000000000, 1) }}",
    "format width": "{{ '{:1000000000}'.format(1) }}",
    "format argument width": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format_map width": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "format filter width": "{{ '%1000000000d' | format(1) }}",
    "many fields": "{{ ('{0}' * 100000).format('a' * 100000) }}",
    "center": "{{ 'a' | center(1000000000) }}",
    "center by map": "{{ ['a'] | map('center', 1000000000) | list }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "zfill by attribute": "{% set f = 'a'.zfill %}{{ f(1000000000) }}",
    "expandtabs": "{{ ('\\t' * 100000).expandtabs(100000) }}",
    "indent": "{{ ('\\n' * 100000) | indent(100000) }}",
    "indent by a text": "{{ ('\\n' * 100000) | indent('a' * 100000) }}",
    "batch": "{{ [1] | batch(1000000000, 'a') | list }}",
    "slice": "{{ [1] | slice(1000000000) | list }}",
    "replace": TEN_MILLION + "{{ t.replace('a', t) }}",
    "replace filter": TEN_MILLION + "{{ t | replace('a', t) }}",
    "replace nothing": TEN_MILLION + "{{ t | replace('', t) }}",
    "join": TEN_MILLION + "{{ t.join(['a'] * 100000) }}",
    "join filter": TEN_MILLION + "{{ ['a', 'b', 'c', 'd', 'e'] | join(t) }}",
    "tojson indent": "{{ [1, 2] | tojson(indent=1000000000) }}",
    "to_bytes": "{{ 1 .to_bytes(1000000000, 'big') }}",
    "bytes": "{{ 'a'.encode().ljust(1000000000) }}",
    "translate": TEN_MILLION + "{{ t.translate({97: t}) }}",
    "wide range": "{% for i in range(1000000000) %}{% endfor %}",
    "strftime": "{{ strftime_now('%1000000000d') }}",
    "output": TEN_MILLION + "{% for i in range(100000) %}{{ t }}{% endfor %}",
    "kept slices": "{% set t = range(100000) | list %}{% set n = namespace(x=[]) %}{% for i in range(100000) %}"
    "{% set n.x = [n.x, t[:]] %}{% endfor %}",
    "kept lists": "{% set n = namespace(x=[]) %}{% for i in range(100000) %}"
    "{% set n.x = [n.x, range(100000) | list] %}{% endfor %}",
}
"""Each makes a great deal of nothing in a way of its own."""

SLOW = {
    "loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "loops that call nothing": "{% for i in range(100000) %}{% for j in range(100000) %}{% set x = 1 %}{% endfor %}"
    "{% endfor %}",
    "branching macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "recursive loops": "{% for a in [[1, 2]] recursive %}{{ loop([[1], [2]]) }}{{ loop([[1], [2]]) }}{% endfor %}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_template_that_makes_too_much_is_stopped(name: str) -> None:
    template = SandboxedTemplate(HOSTILE[name])
    began = time.thread_time()
    with pytest.raises((ChatTemplateError, ConversationError), match="chat template"):
        template.render({}, limits=TemplateLimits({}, seconds=20))
    assert time.thread_time() - began < 4


@pytest.mark.parametrize("name", SLOW)
def test_a_template_that_runs_too_long_is_stopped(name: str) -> None:
    template = SandboxedTemplate(SLOW[name])
    began = time.thread_time()
    with pytest.raises((ChatTemplateError, ConversationError), match=r"ran for more than 0.1 seconds|recursion"):
        template.render({}, limits=TemplateLimits({}, seconds=0.1))
    assert time.thread_time() - began < 2


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__ }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ messages | attr('__class__') }}",
        "{{ self._TemplateReference__context.environment }}",
        "{% include 'x' %}",
        "{% extends '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_the_sandbox_has_no_way_out(source: str) -> None:
    template = SandboxedTemplate(source)
    try:
        text = template.render({"messages": []})
    except (ChatTemplateError, ConversationError) as error:
        text = "unsafe" if "unsafe" in str(error) else "refused" if "loader" in str(error) else str(error)
    assert text in ("", "unsafe", "refused")  # an undefined name prints nothing


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ x",
        "{% nosuch %}",
        "{{ x | nosuch }}",
        "{{ 'a' | urlize }}",
        "{{ lipsum() ",
        "{{ 1" + "+1" * 50000 + "}}",
    ],
)
def test_malformed_sources(source: str) -> None:
    with pytest.raises(ChatTemplateError, match="the model's chat template is malformed"):
        SandboxedTemplate(source)


def test_an_endless_source() -> None:
    with pytest.raises(ChatTemplateError, match="has 1048577 characters; more than 1048576 are not read"):
        SandboxedTemplate("a" * (1024 * 1024 + 1))


def test_the_line_of_a_malformed_source_is_named() -> None:
    with pytest.raises(ChatTemplateError, match=r"malformed, line 3: unexpected end of template"):
        SandboxedTemplate("a\nb\n{% if x")


def test_a_template_refuses_with_its_own_words() -> None:
    template = SandboxedTemplate("{{ raise_exception('Roles must alternate!') }}")
    with pytest.raises(ConversationError, match=r"refuses this conversation: Roles must alternate!$"):
        template.render({})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ nosuch.name }}", "'nosuch' is undefined."),
        ("{{ 'a' + none }}", 'can only concatenate str (not "NoneType") to str.'),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "maximum recursion depth exceeded"),
        ("{{ range | tojson }}", "Object of type function is not JSON serializable."),
    ],
)
def test_a_template_that_fails(source: str, message: str) -> None:
    with pytest.raises(ConversationError) as caught:
        SandboxedTemplate(source).render({})
    assert str(caught.value).startswith("the model's chat template fails on this conversation: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% generation %}said {{ x }}{% endgeneration %}!", "said <é>!"),
        ("{{ [x, {'b': 1, 'a': 2}] | tojson }}", '["<é>", {"b": 1, "a": 2}]'),
        ("{{ {'a': [x]} | tojson(indent=2) }}", '{\n  "a": [\n    "<é>"\n  ]\n}'),
        ("{{ x | tojson(ensure_ascii=true) }}", '"<\\u00e9>"'),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":2,"b":1}'),
        ("{{ strftime_now('%d %b %Y') }}", "24 Dec 2025"),
        ("{% for i in [1, 2, 3, 4] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "134"),
        ("{% for i in [1, 2, 3, 4] %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "12"),
        ("  {% if true %}\nyes\n  {% endif %}\nno", "yes\nno"),
        ("{{ missing }}|{{ 1 ~ none ~ missing ~ x }}", "|1None<é>"),
        ("{{ (1, x)[::-1] }}{{ [3, 4][1:] }}", "('<é>', 1)[4]"),
        ("{% for a, b in {'k': 1}.items() %}{{ a }}{{ b }}{{ loop.last }}{{ loop.length }}{% endfor %}", "k1True1"),
        ("{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{{ n.a }}{{ n }}", "2<Namespace>"),
        ("{{ '%s-%02d' % (x, 7) }}{{ '{:>5}'.format(x) }}{{ '%s' | format(x) }}", "<é>-07  <é><é>"),
        ("{% macro m(a) %}{{ a }}{{ caller() }}{% endmacro %}{% call m(1) %}in{% endcall %}", "1in"),
        ("{{ 7 | default(1000000000) }}{{ missing | default(1000000000) }}", "71000000000"),
        ("{{ '%d' | format(1000000000) }}{{ '{}'.format(1000000000) }}{{ '%d' % 1000000000 }}", "1000000000" * 3),
        ("{{ [5, 1000000000] | select('lt', 1000000000) | list }}", "[5]"),
        ("{% set edge = [] %}{% set keep = 1 %}{% set step = 2 %}{% for i in [keep] %}{{ [i] }}{% endfor %}", "[1]"),
    ],
)
def test_what_templates_may_use(source: str, text: str) -> None:
    template = SandboxedTemplate(source, clock=lambda: datetime(2025, 12, 24, tzinfo=UTC))
    assert template.render({"x": "<é>"}) == text


def test_a_long_conversation_is_no_attack() -> None:
    source = "{% for m in messages %}{% set c = m.content | trim %}{{ '[' + c.replace('a', 'bb') ~ ']' }}{% endfor %}"
    messages: list[dict[str, Any]] = [{"content": "a" * 100_000}] * 100
    text = SandboxedTemplate(source).render({"messages": messages})
    assert len(text) == 100 * 200_002


def test_constants_are_the_strings_of_the_source() -> None:
    template = SandboxedTemplate("text {% if '</think>' in x %}{{ x.split('<b>')[-1] + '' }}{% endif %}")
    assert template.constants == {"</think>", "<b>"}
