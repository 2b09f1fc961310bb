"""SandboxedTemplate: renders a Jinja chat template as transformers does, in a sandbox with limits.

The environment is that of transformers' ``apply_chat_template``: jinja2's immutable sandbox, ``trim_blocks``,
``lstrip_blocks``, ``{% break %}`` and ``{% continue %}``, ``{% generation %}``, ``tojson`` which escapes nothing,
``raise_exception`` and ``strftime_now``. What a template may cost is in ``limits``. Left out are the
filters that lay out HTML (``urlize``, ``xmlattr``, ``striptags``, ``wordwrap``, ``pprint``) and ``lipsum``.

The one module that imports jinja2.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from typing import Any, cast

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from edgegen.chat.limits import LimitReached, TemplateLimits
from edgegen.errors import ChatTemplateError, ConversationError

_MAX_SOURCE = 1 << 20
_LAYOUT_FILTERS = ("pprint", "striptags", "urlize", "wordwrap", "xmlattr")
_OPERATORS = frozenset({"+", "*", "**", "%"})
_current: ContextVar[TemplateLimits] = ContextVar("limits of the rendering")

Clock = Callable[[], datetime]


class SandboxedTemplate:
    """One compiled template; may be shared between threads.

    ``constants``: the texts that stand as strings in its source, among them what it compares content with. ``names``:
    the variables that it reads. ``attributes``: the names after dots, such as the fields of messages.
    """

    def __init__(self, source: str, *, clock: Clock = datetime.now) -> None:
        """Compile a chat template; ``clock`` is what the template's ``strftime_now`` reads.

        Raises:
            ChatTemplateError: the source is no Jinja template.
        """
        if len(source) > _MAX_SOURCE:
            raise ChatTemplateError(
                f"the model's chat template has {len(source)} characters; more than {_MAX_SOURCE} are not read."
            )
        environment = _Environment(clock)
        try:
            tree = environment.parse(source)
            self.constants = frozenset(
                node.value for node in tree.find_all(nodes.Const) if isinstance(node.value, str) and node.value
            )
            self.attributes = frozenset(node.attr for node in tree.find_all(nodes.Getattr))
            self.names = frozenset(node.name for node in tree.find_all(nodes.Name) if node.ctx == "load")
            self._template = environment.from_string(_Supervision().visit(tree))
        except Exception as error:  # the parser and the compiler of untrusted text: whatever they raise
            line = f", line {error.lineno}" if isinstance(error, jinja2.TemplateSyntaxError) else ""
            raise ChatTemplateError(f"the model's chat template is malformed{line}: {_sentence(error)}") from error

    def render(self, variables: Mapping[str, Any], *, limits: TemplateLimits | None = None) -> str:
        """The text the template makes of ``variables``.

        Raises:
            ConversationError: the template refuses them, with its own message, or fails on them.
            ChatTemplateError: it was stopped at its limits, or reached out of the sandbox.
        """
        token = _current.set(limits or TemplateLimits(variables))
        try:
            return self._template.render(dict(variables))
        except _Refusal as error:
            raise ConversationError(f"the model's chat template refuses this conversation: {error}") from None
        except LimitReached as error:
            raise ChatTemplateError(f"the model's chat template was stopped: it {error}.") from None
        except SecurityError as error:
            raise ChatTemplateError(f"the model's chat template was stopped: {_sentence(error)}") from None
        except Exception as error:  # the template's own code: whatever it raises
            raise ConversationError(
                f"the model's chat template fails on this conversation: {_sentence(error)}"
            ) from error
        finally:
            _current.reset(token)


class _Refusal(jinja2.TemplateError):
    """Error that a template raises by ``raise_exception``."""


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = _OPERATORS

    def __init__(self, clock: Clock) -> None:
        def strftime_now(format: str) -> str:  # noqa: A002 (transformers' name)
            if len(format) > 200 or re.search(r"\d{3}", format):
                raise LimitReached("formats a date of more than 200 characters")
            return clock().strftime(format)

        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols], optimized=False
        )
        self.filters["tojson"] = _tojson
        for name in _LAYOUT_FILTERS:
            del self.filters[name]
        self.filters = {name: _limited(name, function) for name, function in self.filters.items()}
        del self.globals["lipsum"]
        self.globals |= {
            "raise_exception": _refuse,
            "strftime_now": strftime_now,
            "namespace": _Namespace,
        }

    @staticmethod
    def concat(texts: Iterable[str]) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return _current.get().join(texts)

    def step(self) -> None:
        """Stands first in every loop and macro; ``call`` does the work."""

    def keep(self, value: Any) -> Any:
        return _current.get().keep(value)

    def concatenation(self, *values: Any) -> str:
        return _current.get().join(map(str, values))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        limits = _current.get()
        limits.check_operator(operator, left, right)
        return limits.keep(super().call_binop(context, operator, left, right))

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        limits = _current.get()
        limits.step()
        subject = getattr(function, "__self__", None)
        if subject is self:
            return function(*args)
        if isinstance(subject, bytes):
            raise SecurityError("it works on bytes")
        if isinstance(subject, str | int):
            limits.check_call(function.__name__, subject, [*args, *kwargs.values()])
        elif isinstance(function, Macro):  # which holds what it was not declared to take, as varargs and kwargs
            limits.keep([*args, *kwargs.values()])
        return limits.keep(super().call(context, function, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            _current.get().check_call("format", value.__self__, [*args, *kwargs.values()])
            return wrapped(*args, **kwargs)

        return formatted


class _Supervision(NodeTransformer):
    """Lets the environment look at every turn of a loop and at every list, slice and text put together."""

    def visit_For(self, node: nodes.For | nodes.Macro | nodes.CallBlock) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(self._call("step", [], node), lineno=node.lineno))
        return node

    visit_Macro = visit_CallBlock = visit_For  # noqa: N815

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._kept(node, node.items)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        return self._kept(node, node.items) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._kept(node, [pair.value for pair in node.items])

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._call("keep", [node], node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._call("concatenation", node.nodes, node)

    def _kept(self, node: nodes.Literal, items: list[nodes.Expr]) -> nodes.Node:
        if all(isinstance(item, nodes.Const) for item in items):
            return node
        self.generic_visit(node)
        return self._call("keep", [node], node)

    @staticmethod
    def _call(name: str, arguments: list[nodes.Expr], at: nodes.Node) -> nodes.Call:
        return nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None, lineno=at.lineno)


class _GenerationTag(Extension):
    """``{% generation %}…{% endgeneration %}`` marks what an assistant says, for training; here it is only text."""

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("said"), [], [], body).set_lineno(line)

    def said(self, caller: Callable[[], str]) -> str:
        return caller()


class _Namespace(Namespace):
    """Without jinja2's own text, which prints what namespaces hold of each other over and over."""

    def __repr__(self) -> str:
        return "<Namespace>"


def _limited(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # What pass_context and its like mark comes as a first argument, before the filtered value.
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        limits = _current.get()  # LookupError while compiling, which then leaves the filter to the rendering
        limits.check_call(name, args[first], [*args[first + 1 :], *kwargs.values()])
        return limits.keep(function(*args, **kwargs))

    return limited


def _tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys, default=_listed
    )


def _listed(value: object) -> list[Any]:
    """Return the results of ``map`` and ``select`` as a list, as llama.cpp's templates write them."""
    if isinstance(value, Iterator):
        return list(cast(Iterator[Any], value))
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _refuse(message: object) -> None:
    raise _Refusal(str(message))


def _sentence(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."
