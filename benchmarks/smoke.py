"""Install each package in dist/ into its own virtual environment and try it: `python benchmarks/smoke.py dist`."""

import subprocess
import sys
import tempfile
from pathlib import Path

CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"
TRAIN = "--env CartPole-v1 --setting heterogeneous --clients 2 --dims 40 60 --episodes 4 --round-episodes 2 --out run"


def try_out(package: Path) -> None:
    """Install one package and run its main commands. Exits with a message if one of them fails."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        subprocess.run([sys.executable, "-m", "venv", str(home / "venv")], check=True)
        python = home / "venv" / "bin" / "python"

        def run(*args: str) -> str:
            done = subprocess.run([str(a) for a in args], cwd=home, text=True, capture_output=True)
            if done.returncode:
                sys.exit(f"{package.name}: {' '.join(map(str, args))} failed\n{done.stdout}{done.stderr}")
            return done.stdout

        run(python, "-m", "pip", "install", "--quiet", "-c", CONSTRAINTS, package.resolve())
        version = run(python, "-c", "import fedqhd; print(fedqhd.__version__)").strip()
        assert version in package.name, (version, package.name)
        typed = run(
            python, "-c", "import fedqhd, pathlib; print((pathlib.Path(fedqhd.__file__).parent / 'py.typed').exists())"
        )
        assert typed.strip() == "True", "py.typed is missing"
        heavy = run(python, "-m", "pip", "list", "--format", "freeze").lower()
        for name in ("torch", "onnx", "mkdocs", "scikit-learn", "playwright"):
            assert f"\n{name}==" not in heavy, f"{name} was pulled in"
        fedqhd = python.parent / "fedqhd"
        run(fedqhd, "train", *TRAIN.split())
        run(fedqhd, "evaluate", "run", "--episodes", "2")
        run(fedqhd, "play", "run", "--gif", "p.gif")
        run(fedqhd, "export", "run", "--format", "c", "--out", "p.h")
        run(fedqhd, "doctor")
        print(f"{package.name}: installs and works with Python {sys.version.split()[0]}", flush=True)


found = sorted(p for p in Path(sys.argv[1]).iterdir() if p.name.endswith((".whl", ".tar.gz")))
assert len(found) == 2, f"a wheel and an sdist are expected, not {[p.name for p in found]}"
for each in found:
    try_out(each)
