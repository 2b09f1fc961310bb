"""lm-evaluation-harness with edgegen among its models: ``python -m edgegen.evaluation.lm_eval run --model edgegen …``.

All but the model is the harness's own command; it comes with ``pip install "edgegen[eval]"``.
"""

from importlib import import_module
from typing import Any

from edgegen.bundle.kv_format import KVDtype
from edgegen.bundle.store import DEFAULT_MODEL
from edgegen.errors import UsageError
from edgegen.evaluation.harness import HarnessModel
from edgegen.llm import LLM
from edgegen.options.engine import EngineOptions

NAME = "edgegen"
"""Name of the model in the harness."""


def register() -> type[Any]:
    """Make ``edgegen`` a model of the harness, ``model``, ``threads`` and ``kv`` being its ``model_args``; its class.

    Raises:
        UsageError: the harness is not installed.
    """
    try:
        import_module("lm_eval.models")  # its own ones, which it would not look for once there is one
        base: Any = import_module("lm_eval.api.model").LM
    except ModuleNotFoundError as error:
        raise UsageError(f'lm-evaluation-harness is missing ({error}): run `pip install "edgegen[eval]"`.') from None

    class EdgegenLM(HarnessModel, base):
        def __init__(
            self,
            model: str = DEFAULT_MODEL,
            threads: int | None = None,
            kv: KVDtype | None = None,
            *,
            batch_size: object = None,
            max_batch_size: object = None,
            device: object = None,
        ) -> None:
            """The harness passes the rest to every model; here there is nothing to choose."""
            base.__init__(self)
            HarnessModel.__init__(self, LLM.load(model, options=EngineOptions(threads=threads, kv=kv)))

    import_module("lm_eval.api.registry").register_model(NAME)(EdgegenLM)
    return EdgegenLM


if __name__ == "__main__":
    register()
    import_module("lm_eval.__main__").cli_evaluate()
