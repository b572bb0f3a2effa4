"""The blocks of a page in docs/, and how they are run: files are written, commands typed, Python executed."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from typing import NamedTuple

from conftest import ROOT
from processes import FEDQHD, end, fedqhd, read_until, start

FENCE = re.compile(r'^```(\w*)[ \t]*(?:title="([^"\n]*)"|([^\n]*))\n(.*?)^```[ \t]*$', re.S | re.M)
FILE = re.compile(r"(?:#|/\*) (\w+\.(?:py|c))\b")
PROGRAMS = ("fedqhd", "gcc", "python", "python3", "pip", "pipx", "uvx", "make", "flwr")
"""The programs by which a command is known in a block that says nothing of its language."""


class Block(NamedTuple):
    language: str
    title: str
    code: str

    @property
    def commands(self) -> list[str]:
        """The commands of a block: all lines of a shell, and those lines of plain text that begin with a program."""
        lines = [line.strip() for line in re.sub(r"\\\n\s*", "", self.code).splitlines()]
        lines = [line for line in lines if line and not line.startswith("#")]
        if self.language == "bash":
            return lines
        return [x for x in lines if self.language in ("", "text") and program_of(x) in PROGRAMS]

    @property
    def is_runnable(self) -> bool:
        return self.language in ("python", "c") or bool(self.commands)


def program_of(command: str) -> str:
    """The name of the program, wherever it is installed; a line of output may have none."""
    return command.split()[0].removeprefix("$").rpartition("/")[2]


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    found = [Block(language, title or bare.strip(), code) for language, title, bare, code in FENCE.findall(text)]
    assert len(found) * 2 == len(re.findall(r"^\s*```", text, re.M)), f"{page}.md has a fence that is not understood"
    return found


def gcc(*args, cwd):
    """The compiler, which also has to accept the code without optimisation and without a warning."""
    for strict in ((), ("-O0", "-Werror", "-pedantic")):
        done = subprocess.run(["gcc", *args, *strict], capture_output=True, text=True, cwd=cwd)
        if done.returncode:
            break
    return done


class Reader:
    """Somebody who does what a page says, in a folder of their own."""

    def __init__(self, folder):
        self.folder, self.started, self.session = folder, [], {"__name__": "page"}

    def type(self, command, more=""):
        """Type a command to its end; `&` leaves it in the background, and `watch` is stopped by Ctrl-C."""
        words = shlex.split(command, comments=True)
        background = words[-1] == "&"
        args = [*words[1 : len(words) - background], *more.split()]
        program = program_of(command)
        assert program in ("fedqhd", "gcc"), command
        if background or args[0] == "watch":
            self.started.append(start(FEDQHD, *args, cwd=self.folder))
            if not background:
                read_until(self.started[-1], "watching ")
                self.interrupt(self.started[-1], 130)
            return
        done = fedqhd(*args, cwd=self.folder) if program == "fedqhd" else gcc(*args, cwd=self.folder)
        assert done.returncode == 0, (command, done.stdout, done.stderr)

    def do(self, block, page):
        """Write the file whose name the block begins with, or execute it as Python."""
        if name := FILE.match(block.code):
            (self.folder / name[1]).write_text(block.code)
        else:
            assert block.language == "python", block.code
            exec(compile(block.code, f"{page}.md", "exec"), self.session)

    def interrupt(self, process, *codes):
        """Press Ctrl-C, after which a program ends by itself with one of these codes."""
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0]
        assert process.returncode in codes, (process.returncode, said)

    def leave(self):
        """Stop what still runs in the background."""
        try:
            for process in self.started:
                if process.poll() is None:
                    self.interrupt(process, 0, 130)
        finally:
            for process in self.started:
                end(process)
