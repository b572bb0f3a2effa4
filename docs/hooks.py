"""Adds to the site what is not a page in docs/: results, the --help of every command, and the notebooks."""

from __future__ import annotations

import argparse
import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

from fedqhd.ui.cli import make_parser

ROOT = Path(__file__).parent.parent
BESIDE = InclusionLevel.NOT_IN_NAV
COLUMNS = 76
"""The characters in a line of --help, as many as the page has room for."""
OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)]*)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the result files, the page of the commands and a page for each notebook."""
    for path in sorted((ROOT / "results").glob("*.*")):
        files.append(File.generated(config, f"results/{path.name}", content=path.read_bytes(), inclusion=BESIDE))
    files.append(File.generated(config, "commands.md", content=commands()))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        page, images = notebook_page(path)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
        for name, data in images.items():
            files.append(File.generated(config, f"notebooks/{name}", content=data, inclusion=BESIDE))
    return files


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Let links that lead out of docs/ point to the file in the site or, if there is none, keep only their text."""

    def link(match: re.Match[str]) -> str:
        label, path = match.groups()
        return f"[{label}]({path})" if path.startswith("results/") else label

    inside = page.file.src_uri.startswith("notebooks/")  # from there, ../ leads to docs/
    return markdown if inside else OUTSIDE.sub(link, markdown)


def commands() -> str:
    """Return the page with the --help of every command."""
    parser = make_parser(["train"])
    parts = ["# Commands\n", "Every setting of `train` is also a key of a TOML file (`--config`), with `_` for `-`.\n"]
    for sub in (leaf for command in subcommands(parser) for leaf in subcommands(command) or [command]):
        sub.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=COLUMNS)
        parts.append(f"## {sub.prog}\n\n```text\n{sub.format_help()}```\n")
    return "\n".join(parts)


def subcommands(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers of the commands that a parser has."""
    return [sub for a in parser._actions if isinstance(a, argparse._SubParsersAction) for sub in a.choices.values()]


def notebook_page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as a page in Markdown, and the files of its images by name."""
    parts, images = [], {}
    for k, cell in enumerate(json.loads(path.read_text())["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\((?![a-z]+:)([^)]*)\.ipynb\)", r"(\1.md)", source))
            continue
        parts.append(f"```python\n{source}\n```")
        for j, output in enumerate(cell["outputs"]):
            text, image = output_markdown(output, f"{path.stem}-{k}-{j}")
            parts.append(text)
            images |= image
    title, *rest = parts
    download = f"[Download this notebook]({path.name}){{ download }} to run it in Jupyter."
    return "\n\n".join([title, download, *rest]) + "\n", images


def output_markdown(output: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Return one output of a cell as Markdown, with its image, which is stored under `name`."""
    data = output.get("data", {})
    for kind in ("png", "gif"):
        if picture := data.get(f"image/{kind}"):
            file = f"{name}.{kind}"
            return f"![Output of the cell above]({file})", {file: base64.b64decode("".join(picture))}
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.S)
        html = re.sub(r' (?:border="1"|class="dataframe"|style="[^"]*")', "", html)
        return '<div class="output">\n' + re.sub(r"\n\s*", "\n", html).strip() + "\n</div>", {}
    text = "".join(output.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```", {}
