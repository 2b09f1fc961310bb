"""Help texts with options in groups: the common ones with ``--help``, all of them with ``--help-all``."""

from functools import cache
from inspect import cleandoc
from typing import Literal, get_args

import click

from edgegen.cli.flag import Flag
from edgegen.options.option import Group

HelpGroup = Group | Literal["Tests"]
"""A group of the table of options, or what ``eval`` and ``bench`` measure."""

_ORDER: tuple[str, ...] = ("Tests", *get_args(Group))
_EVERYTHING = "edgegen.everything"
_WIDEST = 30
"""Characters of an option that still has its help beside it."""


class GroupedOption(Flag):
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
        text = cleandoc(self.help or "")
        if self._is_short(ctx):
            text = text.split("\n\n")[0]
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups = dict[str, list[tuple[str, str]]]()
        for parameter in self.get_params(ctx):
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            grouped = parameter if isinstance(parameter, GroupedOption) else GroupedOption
            if record is not None and (grouped.common or not self._is_short(ctx)):
                groups.setdefault(grouped.group, []).append(record)
        width = max((min(len(term), _WIDEST) for records in groups.values() for term, _ in records), default=0)
        for group in sorted(groups, key=_ORDER.index):
            with formatter.section(group):
                formatter.write_dl([(term.ljust(width), text) for term, text in groups[group]], col_max=_WIDEST)

    def _is_short(self, ctx: click.Context) -> bool:
        """Whether only the first paragraph and the common options are asked for, as there is ``--help-all``."""
        return not ctx.meta.get(_EVERYTHING) and any(option.name == "help_all" for option in self.params)


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
