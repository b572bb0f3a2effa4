"""Measure the size and the error of exported policies of three CartPole clients, on states that they visit."""

from __future__ import annotations

import ctypes
import json
import re
import runpy
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from common import ROOT, head

import fedqhd
from fedqhd.export import export
from fedqhd.gap.states import policy_states

STATES = 5000
COMMAND = {
    "env": "CartPole-v1", "setting": "heterogeneous", "encoder": ["fourier", "complex", "symbolic"], "clients": 3,
    "dims": [1000], "sigma_spread": 0.0, "learner": "least-squares", "episodes": 100,
}  # fmt: skip


def compiled(header: Path) -> ctypes.CDLL:
    """Compile an exported C header into a library with a function `action`."""
    source = header.with_suffix(".c")
    source.write_text(f'#include "{header.name}"\nint action(const float *o) {{ return {header.stem}_action(o); }}\n')
    library = header.with_suffix(".so")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library))


def row(run: str, client: int, format: str, folder: Path) -> dict[str, object]:
    """Export one policy and compare it with the original."""
    policy = fedqhd.load_policy(run, client)
    S = policy_states([policy], STATES, np.random.default_rng(1)).astype(np.float32)
    Q = policy.q(S)
    file = export(run, client, format, folder / f"p{client}.{ {'onnx': 'onnx', 'numpy': 'py', 'c': 'h'}[format] }")
    found: dict[str, object] = {"encoder": policy.model.encoder.name, "format": format, "bytes": file.stat().st_size}
    if format == "c":
        library = compiled(file)
        pointers = [np.ascontiguousarray(s).ctypes.data_as(ctypes.POINTER(ctypes.c_float)) for s in S]
        actions = np.array([library.action(p) for p in pointers])
        found["flash"] = int(re.search(r"The constants take ([\d,]+) bytes", file.read_text())[1].replace(",", ""))
    else:
        if format == "onnx":
            values = onnxruntime.InferenceSession(str(file)).run(None, {"obs": S})[0]
        else:
            values = runpy.run_path(str(file))["q"](S)
        actions = values.argmax(axis=1)
        found["error"] = float(np.abs(values - Q).max() / np.abs(Q).max())
    found["same_actions"] = float(np.mean(actions == Q.argmax(axis=1)))
    return found


out = str(ROOT / "runs" / "export")
summary = fedqhd.train(**COMMAND, out=out, overwrite=True)
with tempfile.TemporaryDirectory() as folder:
    rows = [row(out, client, format, Path(folder)) for client in range(3) for format in ("onnx", "numpy", "c")]
results = {
    "commit": head(), "command": "python benchmarks/export.py", "settings": COMMAND, "states": STATES,
    "greedy": summary["greedy_return_per_client"], "rows": rows,
}  # fmt: skip
(ROOT / "results" / "export.json").write_text(json.dumps(results, indent=1) + "\n")
print("| encoder | format | file | constants in flash | largest error of Q / largest Q | same action |")
print("|---|---|---:|---:|---:|---:|")
for r in rows:
    flash, error = f"{r['flash']:,}" if "flash" in r else "–", f"{r['error']:.1e}" if "error" in r else "–"
    print(f"| {r['encoder']} | {r['format']} | {r['bytes']:,} | {flash} | {error} | {r['same_actions']:.2%} |")
