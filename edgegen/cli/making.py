"""Bundles that are made because a command wants to run them: of a checkpoint on this machine, or of the hub's model."""

import shlex
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import click

from edgegen.bundle.export_record import CheckpointFiles, ExportRecord, exported_at
from edgegen.bundle.hub_name import HubReference, pulled_name
from edgegen.bundle.store import BundleStore
from edgegen.cli.export import ExportOptions, export_for_here, needs_for_here, source_name
from edgegen.cli.pull import is_there, near_names, scheme_of
from edgegen.cli.scheme_flags import SCHEMES, Scheme
from edgegen.errors import EdgegenError, UsageError
from edgegen.system import locked, trim_memory, use_one_blas_thread

_POLL_S = 0.2


def pulled(reference: HubReference, asked: "Scheme | None", *, fast: bool) -> str:
    """The bundle of a model of the hub, which is downloaded and exported if it is not there.

    Raises:
        EdgegenError: it cannot be.
    """
    store, asked = BundleStore(), scheme_of(reference, asked)
    for known in (asked,) if asked else SCHEMES:
        if is_there(store.path(name := pulled_name(reference.hub, known, reference.gguf))):
            use_one_blas_thread()
            return name
    wanted: Scheme = asked or "int8"
    target = store.path(pulled_name(reference.hub, wanted, reference.gguf))
    with _alone(target), near_names(reference.hub):
        if not is_there(target):
            options = ExportOptions(scheme=wanted, fast=fast, gguf_file=reference.gguf)
            export_for_here(reference.hub, target, options)
    trim_memory()
    return target.name


def exported(place: Path, name: str, asked: "Scheme | None", *, fast: bool, yes: bool) -> str:
    """The bundle of a checkpoint on this machine, called ``name``, which is exported if it was not.

    Raises:
        UsageError: nobody is there to be asked, and ``yes`` is not given.
        EdgegenError: it cannot be exported.
    """
    if found := _find(place, asked):
        use_one_blas_thread()
        return _say_found(name, found.bundle)
    scheme: Scheme = asked or "int8"
    options = ExportOptions(scheme=scheme, fast=fast)
    target, replaces = _target(place, scheme)
    changed = f"{name} has changed since it was exported; " if replaces else ""
    flags = (f"--{scheme}", *(("--fast",) if fast else ()))
    if yes:
        click.echo(f"edgegen: {changed}exporting {name} to {target.name}, once.", err=True)
    elif sys.stdin.isatty() and sys.stderr.isatty():
        _ask(f"{changed}Export {name} to {target.name}, once", needs_for_here(str(place), target, options))
    else:
        command = _command("export", str(place), *flags, *(("--force",) if replaces else ()))
        reason = changed or f"{name} is no bundle yet: "
        raise UsageError(f"{reason}run `{command}` first, or add --yes, which does that once.")
    with _alone(target) as waited:
        if waited and (found := _find(place, scheme)):  # the other process has exported it
            return _say_found(name, found.bundle)
        target, replaces = _target(place, scheme)
        export_for_here(str(place), target, replace(options, force=replaces))
    trim_memory()
    return target.name


def _find(place: Path, scheme: "Scheme | None") -> ExportRecord | None:
    """The bundle that was exported from what is there now, in the first of the schemes.

    Raises:
        EdgegenError: the files cannot be read.
    """
    try:
        records = list(CheckpointFiles(place).exports())
    except FileNotFoundError:  # a part of a split file is missing, which an export says better
        return None
    except OSError as error:
        raise EdgegenError(f"{error.filename or place}: cannot be read: {error.strerror or error}.") from error
    for known in (scheme,) if scheme else SCHEMES:
        for record in records:
            if record.scheme == known:
                return record
    return None


def _say_found(name: str, bundle: str) -> str:
    click.echo(f"edgegen: {name} was exported before: this is {bundle}.", err=True)
    return bundle


def _target(place: Path, scheme: "Scheme") -> tuple[Path, bool]:
    """Where the bundle goes, and whether it replaces one of an earlier state of the same files; others are kept."""
    store, stem = BundleStore(), f"{source_name(str(place))}-{scheme}"
    if before := exported_at(place, scheme):
        return store.path(before), True
    for number in count(1):
        try:
            folder = store.path(stem if number == 1 else f"{stem}-{number}")
        except UsageError:
            raise UsageError(
                f"no bundle can be named {stem!r}: give {place} another name, or run "
                f"`{_command('export', str(place), '-o', 'FOLDER')}`."
            ) from None
        if not is_there(folder):
            return folder, False
    raise AssertionError


def _ask(question: str, needs: str | None) -> None:
    """Ask, and leave the command where the answer is no; ``needs``: what the export takes, if that is known."""
    if not click.confirm(f"{question}{f': about {needs}' if needs else ''}?", default=True, err=True):
        click.echo("edgegen: nothing was exported.", err=True)
        click.get_current_context().exit(1)


@contextmanager
def _alone(target: Path) -> Generator[bool]:
    """Keep other processes from making the same bundle meanwhile; whether another one had to be waited for.

    Raises:
        EdgegenError: the store cannot be written.
    """
    waited, lock = False, target.with_name(f".{target.name}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        while True:
            with locked(lock) as free:
                if free:
                    yield waited
                    return
            if not waited:
                click.echo(f"edgegen: another process makes {target.name}: waiting for it.", err=True)
            waited = True
            time.sleep(_POLL_S)
    except OSError as error:
        raise EdgegenError(f"{error.filename or target}: {error.strerror or error}.") from error


def _command(*words: str) -> str:
    """A command of edgegen, as a shell takes it."""
    line = ["edgegen", *words]
    return subprocess.list2cmdline(line) if sys.platform == "win32" else shlex.join(line)
