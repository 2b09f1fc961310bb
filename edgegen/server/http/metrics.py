"""Metrics of the server, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from edgegen.generation.results import GenerationResult

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """Counters of one server, in a registry of its own."""

    def __init__(self, requests: Callable[[], float], loaded: Callable[[], float]) -> None:
        """``requests``: how many run or wait now. ``loaded``: how many models are loaded."""
        self._registry = registry = CollectorRegistry()
        self._responses = Counter(
            "edgegen_requests", "Generation requests by path and HTTP status.", ["path", "status"], registry=registry
        )
        self._tokens = Counter(
            "edgegen_tokens", "Tokens by model and kind: prompt, cached, completion.", ["model", "kind"],
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "edgegen_request_seconds", "Duration of a generation request.", ["path"], buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self._first = Histogram(
            "edgegen_time_to_first_token_seconds", "From the request's arrival to its first token.", ["path"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        gauge = Gauge("edgegen_requests_in_progress", "Requests that run or wait.", registry=registry)
        gauge.set_function(requests)
        self._loads = Counter(
            "edgegen_model_loads", "Models loaded since the start, by result: loaded, failed.", ["model", "result"],
            registry=registry,
        )  # fmt: skip
        self._unloads = Counter(
            "edgegen_model_unloads", "Models unloaded, on demand or for room.", ["model"], registry=registry
        )
        self._load_seconds = Histogram(
            "edgegen_model_load_seconds", "Duration of loading a model.", ["model"], buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        gauge = Gauge("edgegen_models_loaded", "Models that are loaded.", registry=registry)
        gauge.set_function(loaded)

    def ended(self, path: str, status: int, seconds: float) -> None:
        """A generation request has been answered."""
        self._responses.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def first_token(self, path: str, seconds: float) -> None:
        self._first.labels(path).observe(seconds)

    def answered(self, model: str, result: GenerationResult) -> None:
        """Count the tokens of a result."""
        timings = result.timings
        self._tokens.labels(model, "prompt").inc(timings.prompt_tokens)
        self._tokens.labels(model, "cached").inc(timings.cached_tokens)
        self._tokens.labels(model, "completion").inc(sum(len(choice.token_ids) for choice in result.choices))

    def embedded(self, model: str, tokens: int) -> None:
        """Count the tokens of inputs of embeddings."""
        self._tokens.labels(model, "prompt").inc(tokens)

    def model_loaded(self, model: str, seconds: float) -> None:
        self._loads.labels(model, "loaded").inc()
        self._load_seconds.labels(model).observe(seconds)

    def model_failed(self, model: str) -> None:
        self._loads.labels(model, "failed").inc()

    def model_unloaded(self, model: str) -> None:
        self._unloads.labels(model).inc()

    def text(self) -> bytes:
        """All of them, in Prometheus' text format."""
        return generate_latest(self._registry)
