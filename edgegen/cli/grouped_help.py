"""Help texts with options in groups: the common ones with ``--help``, all of them with ``--help-all``."""

from functools import cache
from inspect import cleandoc
from typing import Literal, get_args

import click

from edgegen.options.table import Group

HelpGroup = Group | Literal["Tests"]
"""A group of the table of options, or what ``eval`` and ``bench`` measure."""

_ORDER: tuple[str, ...] = ("Tests", *get_args(Group))
_EVERYTHING = "edgegen.everything"


class GroupedOption(click.Option):
    """An option of a group, which the short help text may leave out."""

    group = "Output"
    common = True


@cache
def in_group(name: HelpGroup, *, is_common: bool = True) -> type[GroupedOption]:
    """The class of a group's options."""

    class Grouped(GroupedOption):
        group = name
        common = is_common

    return Grouped


class GroupedCommand(click.Command):
    """A command whose help text has its options in groups."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """All of it with ``--help-all``, else the first paragraph if there is more to show there."""
        text = cleandoc(self.help or "")
        if self._has_more and not _everything(ctx):
            text = text.split("\n\n")[0]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups = dict[str, list[tuple[str, str]]]()
        for parameter in self.get_params(ctx):
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            grouped = parameter if isinstance(parameter, GroupedOption) else GroupedOption
            if record is not None and (grouped.common or _everything(ctx)):
                groups.setdefault(grouped.group, []).append(record)
        width = max((len(term) for records in groups.values() for term, _ in records if len(term) <= 28), default=0)
        for group in sorted(groups, key=_ORDER.index):
            with formatter.section(group):
                formatter.write_dl([(term.ljust(width), text) for term, text in groups[group]])

    @property
    def _has_more(self) -> bool:
        return any(isinstance(option, GroupedOption) and not option.common for option in self.params)


def _everything(ctx: click.Context) -> bool:
    return bool(ctx.meta.get(_EVERYTHING))


def _show_everything(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[_EVERYTHING] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


help_all = click.option(
    "--help-all",
    cls=GroupedOption,
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_everything,
    help="Show all options and exit.",
)
"""Gives a command ``--help-all``."""
