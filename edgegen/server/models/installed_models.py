"""InstalledModels: loads the bundles of the command line and of the store by name, each with its share of memory."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Self

from edgegen.benchmark.memory_forecast import forecast_memory, kv_bytes
from edgegen.bundle.bundle import Bundle
from edgegen.bundle.store import BundleStore
from edgegen.errors import BundleError, BundleNotFoundError, EdgegenError, UsageError
from edgegen.llm import LLM
from edgegen.model.kernels import runs_kernels
from edgegen.model.loading import LoadProgress
from edgegen.options.engine import EngineOptions
from edgegen.server.models.served_models import ModelLoadError
from edgegen.system import available_memory

_OF_FREE_MEMORY = 0.8
"""The default budget, as a share of what is free at the start: the rest is for prompts, buffers and the system."""

_KV_SHARES = 6
"""A KV cache takes a sixth of the budget at most, and its prefixes half as much, so that several models find room."""

_LEAST_KV = 64 << 20
"""Bytes of KV cache that a short text takes in models of the size that small machines run."""


class InstalledModels:
    """A :class:`~edgegen.server.models.served_models.ModelSource` of bundles. Names come from here only: no text of a
    client is a path.

    ``with InstalledModels(…) as models:`` closes every model that is loaded at the end.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        engine: EngineOptions,
        *,
        budget: int | None = None,
        store: bool = True,
        options_for: Callable[[Bundle], EngineOptions] | None = None,
    ) -> None:
        """``given``: names or paths of bundles, by the names that clients call them; the first is the default.

        ``budget``: bytes of all loaded models; by default most of the memory that is free now. ``store``: the bundles
        of the store are there too. ``options_for``: returns a bundle's options, where they are not the ``engine``'s.

        Raises:
            BundleError: a given one, or the draft model, is no bundle.
            UsageError: one has no variant as ``engine`` asks for, or the first does not fit ``budget``.
        """
        self._store = BundleStore()
        self._given = {name: self._store.resolve(reference).absolute() for name, reference in given.items()}
        self._draft = None if engine.draft is None else Bundle.open(self._store.resolve(engine.draft).absolute())
        self._engine = engine
        self._options_for: Callable[[Bundle], EngineOptions] = options_for or (lambda bundle: engine)
        self._with_store = store
        self._loading = Lock()
        self._loaded = list[LLM]()
        self._closed = False
        bundles = [Bundle.open(folder) for folder in self._given.values()]
        for bundle in bundles:
            bundle.variant_with(self._options_for(bundle).kv)
        free = available_memory()
        self.budget = int(free * _OF_FREE_MEMORY) if budget is None and free is not None else budget
        needed = self._memory(bundles[0])
        if self.budget is None or needed <= self.budget:
            return
        if budget is not None:
            raise UsageError(
                f"{next(iter(given))} needs about {needed / 1e6:,.0f} MB, and --memory-budget allows "
                f"{budget / 1e6:,.0f} MB: give a larger one, or a smaller model."
            )
        self.budget = needed  # the user has asked for this model, whatever was measured

    def names(self) -> list[str]:
        """The given ones first. A bundle that cannot be read is not among them."""
        found = [entry.name for entry in self._store if entry.bundle is not None] if self._with_store else []
        return [*dict.fromkeys([*self._given, *found])]

    def memory(self, name: str) -> int:
        with self._for_clients(name) as bundle:
            return self._memory(bundle)

    def load(self, name: str) -> LLM:
        with self._for_clients(name) as bundle:
            return self._load(bundle)

    def bundle(self, name: str) -> Bundle:
        with self._for_clients(name) as bundle:
            return bundle

    def check_removable(self, name: str) -> None:
        if name in self._given:
            raise UsageError(f"{name!r} cannot be deleted: the server was started with it.")
        if not self._with_store or name not in self.names():
            raise ModelLoadError(f"{name!r} has been removed.")
        try:
            self._store.require(name)
        except BundleNotFoundError:
            raise UsageError(f"{name!r} cannot be deleted: it is a part of edgegen.") from None

    def remove(self, name: str) -> None:
        self.check_removable(name)
        try:
            self._store.remove(name)
        except BundleError as error:
            said = str(error).replace(str(self._store.root / name), repr(name))
            raise ModelLoadError(said) from error

    def load_given(self) -> dict[str, LLM]:
        """The first of the given ones, and of the others as many as fit the budget.

        Raises:
            EdgegenError: as :meth:`LLM.load`.
        """
        loaded, used = dict[str, LLM](), 0
        for name, folder in self._given.items():
            bundle = Bundle.open(folder)
            needed = self._memory(bundle)
            if not loaded or self.budget is None or used + needed <= self.budget:
                loaded[name] = self._load(bundle)
                used += needed
        return loaded

    def close(self) -> None:
        """Close every loaded model, and end a load that is under way."""
        self._closed = True
        with self._loading:
            for llm in self._loaded:
                llm.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextmanager
    def _for_clients(self, name: str) -> Generator[Bundle]:
        """The bundle of that name; errors are one line, without the place of the server's files.

        Raises:
            ModelLoadError: it is not there any more, or what was done with it has failed.
        """
        folder = self._given.get(name)
        if folder is None and self._with_store:
            folder = next((entry.path.absolute() for entry in self._store if entry.name == name), None)
        if folder is None:
            raise ModelLoadError(f"cannot load {name!r}: it has been removed.")
        base = None
        try:
            bundle = Bundle.open(folder)
            base = bundle.base
            yield bundle
        except EdgegenError as error:
            message = str(error).replace(str(folder), repr(name))
            if base is not None:
                message = message.replace(str(base.path), repr(base.path.name))
            if self._draft is not None:
                message = message.replace(str(self._draft.path), repr(self._draft.path.name))
            message = " ".join(message.split())
            raise ModelLoadError(f"cannot load {name!r}: {message}") from error

    def _load(self, bundle: Bundle) -> LLM:
        kv = self._kv(bundle)
        budget = self._engine.kv_budget if self.budget is None else kv
        # Without a budget for prefixes, any other request would make the next turn of a chat a full prefill.
        engine = replace(self._options_for(bundle), kv_budget=budget, prefix_cache=self._prefixes(kv))
        with self._loading:
            llm = LLM.load(bundle.path, options=engine, on_progress=self._refuse_when_closed)
            self._loaded = [*(one for one in self._loaded if not one.closed), llm]
            return llm

    def _memory(self, bundle: Bundle) -> int:
        kv = self._kv(bundle)
        return self._fixed(bundle) + kv + self._prefixes(kv)

    def _fixed(self, bundle: Bundle) -> int:
        """Bytes beside the KV cache of its requests."""
        forecast = forecast_memory(bundle, self._options_for(bundle), kv=0, draft=self._draft)
        if bundle.base is None or bundle.base.path.absolute() not in self._given.values():
            return forecast.of_model
        # The kernels map the weights of a base that is served too, which are there once.
        mapped = runs_kernels(self._options_for(bundle).kernels)
        shared = bundle.weights_size if mapped and bundle.manifest.quantization.linear.block_size else 0
        return forecast.of_model - min(shared, forecast.weights)

    def _kv(self, bundle: Bundle) -> int:
        """Bytes of the KV cache of its requests: those of a full batch, as far as the budget allows."""
        if self._engine.kv_budget is not None:
            return self._engine.kv_budget
        of_one = kv_bytes(bundle, self._options_for(bundle))(bundle.manifest.model.max_context)
        full = of_one * self._engine.max_batch_size
        if self.budget is None:
            return full
        room = (self.budget - self._fixed(bundle)) * 2 // 3
        return min(full, max(_LEAST_KV, min(self.budget // _KV_SHARES, room)))

    def _prefixes(self, kv: int) -> int:
        """Bytes of KV cache that are kept of finished requests."""
        return kv // 2 if self._engine.prefix_cache is None else self._engine.prefix_cache

    def _refuse_when_closed(self, progress: LoadProgress) -> None:
        if self._closed:
            raise ModelLoadError("the server is being stopped.")
