"""Runs the settings of every FILE.toml beside this script and prints a hash of what came out, a line of JSON a file.

    python tests/bits/run.py FOLDER NAME ...   runs into FOLDER; without names, all that need no Flower

Started by `test_bits.py` in a process whose arithmetic is the same on every machine (`PLAIN`): kernels compiled for
any x86-64 processor, and BLAS, numpy and libm without instructions that only newer processors have.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PLAIN = {
    "NUMBA_CPU_NAME": "x86-64",
    "NUMBA_CPU_FEATURES": "+sse2",
    "OPENBLAS_CORETYPE": "Prescott",
    "NPY_DISABLE_CPU_FEATURES": (
        "X86_V3 X86_V4 AVX512_ICL AVX512_SPR SSE41 POPCNT SSE42 AVX F16C FMA3 AVX2 "
        "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL"
    ),
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2_Usable,-AVX2,-FMA_Usable,-FMA,-FMA4_Usable,-FMA4,-AVX512F",
    "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
    "PYTHONWARNINGS": "ignore",
}
CLOCKS = ("wall_seconds", "cpu_seconds", "split_seconds", "loop", "version", "commit")
"""What of a summary is not the same whenever and however it is made."""


def fingerprint(folder: Path) -> dict[str, str]:
    """Hashes of a finished run: its episodes, its models and last exchange, and its summary."""
    from fedqhd.core.files import read_arrays

    models = hashlib.sha256()
    for path in sorted((folder / "models").glob("*.npz")):
        arrays, about = read_arrays(path)
        models.update(
            json.dumps([path.name, {k: v for k, v in about.items() if k != "version"}], sort_keys=True).encode()
        )
        for name in sorted(arrays):
            value = np.ascontiguousarray(arrays[name])
            models.update(f"{name}{value.dtype.str}{value.shape}".encode() + value.tobytes())
    summary = {k: v for k, v in json.loads((folder / "summary.json").read_text()).items() if k not in CLOCKS}
    parts = {
        "episodes": hashlib.sha256((folder / "metrics.jsonl").read_bytes()),
        "models": models,
        "summary": hashlib.sha256(json.dumps(summary, sort_keys=True).encode()),
    }
    return {name: digest.hexdigest()[:16] for name, digest in parts.items()}


def needs_flower(file: Path) -> bool:
    return 'engine = "flower"' in file.read_text()


def main(out: Path, names: list[str]) -> None:
    from fedqhd.runs.config import resolve
    from fedqhd.runs.run import train

    files = [HERE / f"{n}.toml" for n in names] or [f for f in sorted(HERE.glob("*.toml")) if not needs_flower(f)]
    for file in files:
        config = resolve({"out": str(out / file.stem)}, str(file))
        train(config)
        print(json.dumps({"run": file.stem, **fingerprint(config.folder)}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
