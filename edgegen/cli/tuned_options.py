"""The engine options of a command: what it was given, and for the rest what ``edgegen tune`` has found."""

from collections.abc import Callable

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.cli.option_flags import given_engine_options
from edgegen.options.engine import EngineOptions
from edgegen.system import home_folder


def tuned_engine_options(model: str, options: EngineOptions, *, keep_kv: bool = False) -> EngineOptions:
    """``options``, as the running command was given them, with what was tuned for the rest.

    ``keep_kv``: leave the type of the KV cache as it is, for what must be continued later.

    Raises:
        BundleError: there is no such bundle, or it cannot be read.
    """
    if not (home_folder() / "tuned").is_dir():  # as a rule; the bundle is not opened twice then
        return options
    return tuned_for(options, keep_kv=keep_kv)(Bundle.open(BundleStore().resolve(model)))


def tuned_for(options: EngineOptions, *, keep_kv: bool = False) -> Callable[[Bundle], EngineOptions]:
    """A function that gives the options for a bundle, as :func:`tuned_engine_options` does."""
    from edgegen.options.tuned import TunedOptions

    given = set(given_engine_options())

    def choose(bundle: Bundle) -> EngineOptions:
        tuned = TunedOptions.read(bundle)
        return options if tuned is None else tuned.applied(options, given, keep_kv=keep_kv)

    return choose
