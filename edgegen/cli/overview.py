"""The overview of all verbs, in groups by what people do, on one screen; and the words of other programs for them."""

import click

GROUPS = {
    "Run": ("run", "chat", "generate", "batch", "score"),
    "Serve": ("serve",),
    "Make": ("pull", "export"),
    "Look after": ("list", "info", "rm", "verify", "tune", "bench", "eval", "doctor", "config", "completion"),
}
_SPACE = 2

_OTHER_WORDS = {
    **dict.fromkeys(("ls", "models"), "`edgegen list` lists the bundles"),
    **dict.fromkeys(("show", "inspect"), "`edgegen info BUNDLE` shows what a bundle is"),
    "ps": "GET /models of a server says which models are loaded; no other command keeps one",
    **dict.fromkeys(("stop", "unload"), "POST /models/unload of a server unloads a model, and Ctrl-C ends any command"),
    "load": "`edgegen run NAME` loads a model to talk with, `edgegen serve` for others",
    **dict.fromkeys(("start", "server", "llama-server"), "`edgegen serve` serves models over HTTP"),
    **dict.fromkeys(
        ("quantize", "llama-quantize", "create"),
        "`edgegen export CHECKPOINT --int4` or `--int8` makes a bundle, from GGUF files too",
    ),
    **dict.fromkeys(
        ("convert", "convert_hf_to_gguf", "convert_hf_to_gguf.py"),
        "`edgegen export CHECKPOINT` makes a bundle of a checkpoint",
    ),
    **dict.fromkeys(
        ("llama-cli", "main", "talk"),
        "`edgegen chat -m BUNDLE` talks with a model, and `edgegen generate` continues a prompt",
    ),
    **dict.fromkeys(("complete", "completions", "llama-completion"), "`edgegen generate PROMPT` continues a prompt"),
    **dict.fromkeys(("llama-bench", "benchmark"), "`edgegen bench` measures speed and memory"),
    **dict.fromkeys(("perplexity", "llama-perplexity"), "`edgegen score -f FILE` measures the perplexity of a text"),
    **dict.fromkeys(
        ("embed", "embedding", "llama-embedding"), "`edgegen serve` answers /v1/embeddings, and Python has LLM.embed"
    ),
    **dict.fromkeys(("download", "install", "get", "fetch"), "`edgegen pull NAME` downloads a model"),
    **dict.fromkeys(("remove", "delete", "uninstall", "del"), "`edgegen rm NAME` deletes a bundle"),
    **dict.fromkeys(
        ("cp", "copy", "mv"), "a bundle is a folder: copy it, or rename it, as such; `edgegen info BUNDLE` has its path"
    ),
    **dict.fromkeys(
        ("push", "login", "signin", "signout"),
        "edgegen uploads nothing and has no accounts; a token for the hub goes into HF_TOKEN",
    ),
    **dict.fromkeys(("help",), "`edgegen --help` lists the commands, and `edgegen COMMAND --help` explains one"),
    **dict.fromkeys(("version",), "`edgegen --version` prints the version"),
}


def meant_by(word: str) -> str | None:
    """A sentence for a word that is a command elsewhere, such as ollama's or llama.cpp's; it names edgegen's."""
    return _OTHER_WORDS.get(word.lower())


def write_overview(formatter: click.HelpFormatter, verbs: dict[str, str]) -> None:
    """A line for each verb, with its group before the first one."""
    margin = max(map(len, GROUPS)) + _SPACE
    column = margin + max(map(len, verbs)) + _SPACE
    room = max(formatter.width - column, 10)
    for group, members in GROUPS.items():
        for n, verb in enumerate(members):
            first, *rest = click.wrap_text(verbs[verb], room).split("\n")
            formatter.write(f"{'' if n else group:{margin}}{verb:{column - margin}}{first}\n")
            for line in rest:
                formatter.write(" " * column + line + "\n")
