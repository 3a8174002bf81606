"""Execution of notebooks in a Jupyter kernel."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "notebooks"
CELL_TIMEOUT_S = 150
FRESH = "%reset -f"
"""Cell that deletes all names, so that the next notebook starts like in a new kernel."""


@dataclass(frozen=True)
class Executed:
    """The outputs of an executed notebook.

    Attributes:
        html: HTML of all outputs, in order.
        pictures: number of outputs with a PNG.
    """

    html: str
    pictures: int


def execute(
    names: Sequence[str],
    parameters: Mapping[str, Any],
    scratch: Path,
    python: str = "",
    **environment: str,
) -> dict[str, Executed]:
    """Execute notebooks one after the other in one kernel; name of a notebook → its outputs.

    Args:
        parameters: values that replace those of a notebook's cell of parameters.
        scratch: folder for the files that the kernel would write to the home folder.
        python: interpreter of the kernel, which needs ipykernel; this interpreter by default.
        environment: further environment variables of the kernel.
    """
    whole = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    parts = {}
    for name in names:
        cells = _cells(name, parameters)
        parts[name] = cells
        whole.cells += [*cells, _code(FRESH)]
    log = (scratch / "kernel.log").open("ab")
    try:
        client = NotebookClient(
            whole,
            km=_kernel_of(python, scratch) if python else None,
            timeout=CELL_TIMEOUT_S,
            resources={"metadata": {"path": str(FOLDER)}},
        )
        env = _kernel_env(scratch, environment)
        client.execute(cleanup_kc=True, env=env, stdout=log, stderr=log)
    finally:
        log.close()
    return {name: _shown(cells) for name, cells in parts.items()}


def _kernel_of(python: str, scratch: Path) -> AsyncKernelManager:
    folder = scratch / "kernels" / "other"
    folder.mkdir(parents=True, exist_ok=True)
    command = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "other", "language": "python"}
    (folder / "kernel.json").write_text(json.dumps(spec))
    known = KernelSpecManager(kernel_dirs=[str(folder.parent)])
    return AsyncKernelManager(kernel_name=folder.name, kernel_spec_manager=known)


def _cells(name: str, parameters: Mapping[str, Any]) -> list[Any]:
    read: Any = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    cells = []
    for number, cell in enumerate(read.cells):
        cell.id = f"{name}-{number}"
        cells.append(cell)
        if "parameters" in cell.metadata.get("tags", ()):
            known = {key: value for key, value in parameters.items() if f"{key} =" in cell.source}
            cells.append(_code("\n".join(f"{key} = {value!r}" for key, value in known.items())))
    return cells


def _code(text: str) -> Any:
    return nbformat.v4.new_code_cell(text)  # type: ignore[no-untyped-call]


def _kernel_env(scratch: Path, environment: Mapping[str, str]) -> dict[str, str]:
    own = {
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "default",
        "IPYTHONDIR": str(scratch / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(scratch / "runtime"),
        "PYSPARK_PYTHON": sys.executable,
    }
    return {**os.environ, **own, **environment}


def _shown(cells: Sequence[Any]) -> Executed:
    data = [
        output.get("data", {})
        for cell in cells
        if cell.cell_type == "code"
        for output in cell.outputs
    ]
    html = "\n".join(each.get("text/html", "") for each in data)
    return Executed(html, sum("image/png" in each for each in data))
