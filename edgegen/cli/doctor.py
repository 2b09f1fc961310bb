"""``edgegen doctor``: show what this machine and installation are, what will be slow, and what to do about it."""

import json
import platform
from dataclasses import asdict
from typing import Any

import click

import edgegen
from edgegen.cli.diagnosis import Diagnosis, OnnxRuntime, diagnose
from edgegen.model.kernels import describe_kernels
from edgegen.system.build_info import with_commit


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(as_json: bool) -> int:
    """Show what this machine is to edgegen: processor, cores, memory, ONNX Runtime; and what is slow, and why.

    The exit code is 1 where no model can run, because ONNX Runtime cannot be imported.
    """
    found = diagnose(describe_kernels(), OnnxRuntime.installed())
    if as_json:
        click.echo(json.dumps(_record(found), ensure_ascii=False))
    else:
        click.echo(table(found))
    return int(found.onnxruntime.problem is not None)


def table(diagnosis: Diagnosis) -> str:
    """The diagnosis as people read it."""
    runtime = diagnosis.onnxruntime
    builds = ", ".join(f"{name} {version}" for name, version in runtime.distributions.items())
    rows = {
        "edgegen": f"{with_commit(edgegen.__version__)}, Python {platform.python_version()}, {platform.platform()}",
        "computer": diagnosis.computer,
        "processor": f"{diagnosis.processor} ({', '.join(diagnosis.features) or 'features are not told'})",
        "kernels": diagnosis.kernels,
        "cores": _cores(diagnosis),
        "memory": _memory(diagnosis),
        "temperature": None if diagnosis.temperature is None else f"{diagnosis.temperature:.0f} °C",
        "clock": None if diagnosis.governor is None else f"governor {diagnosis.governor}",
        "ONNX Runtime": f"{runtime.version or 'not usable'} ({builds or 'not installed by pip'})",
        "providers": ", ".join(runtime.providers) or None,
    }
    width = max(map(len, rows))
    lines = [f"{name:>{width}}  {value}" for name, value in rows.items() if value]
    for finding in diagnosis.findings:
        lines += ["", f"{'!':>{width}}  {finding.problem}", f"{'':>{width}}  → {finding.advice}"]
    return "\n".join(lines if diagnosis.findings else [*lines, "", f"{'':>{width}}  Nothing here makes models slow."])


def _cores(diagnosis: Diagnosis) -> str:
    cores, parts = diagnosis.cores, list[str]()
    if cores.logical > cores.physical:
        parts.append(f"{cores.logical} logical CPUs")
    if cores.performance < cores.physical:
        parts.append(f"{cores.performance} of them performance cores")
    if cores.quota is not None:
        parts.append(f"a quota of {cores.quota:g}")
    about = f" ({', '.join(parts)})" if parts else ""
    return f"{cores.physical}{about}; {diagnosis.threads} thread{'s' if diagnosis.threads > 1 else ''} by default"


def _memory(found: Diagnosis) -> str | None:
    told = {"free": found.free_bytes, "installed": found.installed_bytes, "limit of the container": found.limit_bytes}
    return ", ".join(f"{count / 1e6:,.0f} MB {what}" for what, count in told.items() if count is not None) or None


def _record(found: Diagnosis) -> dict[str, Any]:
    facts = asdict(found)
    machine = {"python": platform.python_version(), "system": platform.platform()}
    return {"edgegen": edgegen.__version__, **machine, **facts}
