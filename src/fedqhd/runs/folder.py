"""The folder of a run: who may write to it, what is deleted when, and how a run is continued."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

from fedqhd.core.config import Config
from fedqhd.core.errors import FedQHDError
from fedqhd.core.files import checkpoints, damaged, number_of, write_bytes
from fedqhd.core.length import BY_EPISODES, BY_STEPS, each_round, whole_run
from fedqhd.core.trust import TOKEN
from fedqhd.runs import checkpoint, exchange, metrics, rounds_log
from fedqhd.runs.callback import EVALUATIONS, STOPPED
from fedqhd.runs.config import code_names, load_config
from fedqhd.runs.outcome import BEST
from fedqhd.runs.settings import NEUTRAL
from fedqhd.runs.summary import NAME as SUMMARY
from fedqhd.runs.summary import read_summary

DERIVED = ("curves.png", "play.gif", "gap.json", "gap.png")
"""Files that are made from the results of a finished run."""


def resume_command(config: Config) -> str:
    """Return the command that resumes a run."""
    return f"fedqhd train --resume --out {config.folder}"


def describe_interruption(config: Config) -> str:
    """Describe, for the end of an error message, what a run that was stopped leaves behind."""
    found = checkpoints(config.folder)
    if not (config.folder / "config.toml").exists():
        return " before it began: nothing was written"
    when = f"after round {number_of(found[0])}" if found else "in its first round"
    return f" {when}, nothing before that is lost; resume with: {resume_command(config)}"


def identity(config: Config) -> str:
    """Return a hash of all settings that affect what a run has computed up to a round.

    `loop` is left out, since checkpoints of runs that were made before there was such a setting remain valid.
    """
    same = config.replace(out="", engine="auto", callbacks=(), **{length_name(config): 1}).without("loop")
    return f"{zlib.crc32(same.to_toml().encode()):08x}"


def length_name(config: Config) -> str:
    """Return the name of the setting that says how long a run is."""
    return "steps" if whole_run(config).steps else "episodes"


def claim(config: Config, overwrite: bool, resume: bool) -> None:
    """Raise FedQHDError if the folder holds a run, unless it is to be replaced or is the run to resume."""
    folder = config.folder
    try:
        folder.exists()
    except OSError as error:  # its name is too long, for instance
        raise FedQHDError(f"out={str(folder)!r:.200} cannot be used ({error.strerror}): give another folder") from error
    held = folder / "config.toml"
    if resume and overwrite:
        raise FedQHDError("resume and overwrite exclude each other: choose one")
    if resume and held.exists():
        before = {**dict.fromkeys((*BY_EPISODES, *BY_STEPS), 0), **load_config(held, code_names(config.values)).values}
        for name, new in config.values.items():
            old = before.get(name, new)
            if old != new and name not in NEUTRAL:
                raise FedQHDError(f"{name}={new!r} differs from the run to resume, which has {old!r}: leave it out")
        return
    if folder.exists() and not folder.is_dir():
        raise FedQHDError(f"out={str(folder)!r} is a file: give a folder")
    if held.exists() and not overwrite:
        raise FedQHDError(f"out={str(folder)!r} already holds a run: give another folder, resume or overwrite")


def clear(folder: Path) -> None:
    """Delete the run that a folder holds.

    It is called only when the new run is sure to start, so that a mistake in the settings costs nothing. If it is
    interrupted, the folder holds the old run or a part of it, with the old settings.
    """
    clear_checkpoints(folder)
    for home in (folder, folder / BEST):
        for model in (*(home / "models").glob("client-*.npz"), exchange.path_of(home)):
            model.unlink(missing_ok=True)
    for name in ("summary.json", metrics.NAME, rounds_log.NAME, EVALUATIONS, STOPPED, TOKEN, *DERIVED, "config.toml"):
        (folder / name).unlink(missing_ok=True)


def clear_checkpoints(folder: Path) -> None:
    """Delete the checkpoints of a run and files that were not completely written."""
    for path in [*checkpoints(folder), *folder.glob("**/*.part")]:
        path.unlink()
    shutil.rmtree(checkpoint.nodes_folder(folder), ignore_errors=True)


def keep_last_checkpoint(config: Config) -> None:
    """Delete all checkpoints of a finished run but the last one from which it can be extended.

    A last round that was shorter than the others would have been longer in a longer run, so that one does not count.
    """
    for path in checkpoints(config.folder):
        if number_of(path) * each_round(config).amount > whole_run(config).amount:
            path.unlink()
    for path in [*checkpoints(config.folder)[1:], *config.folder.glob("**/*.part")]:
        path.unlink()
    shutil.rmtree(checkpoint.nodes_folder(config.folder), ignore_errors=True)


def extend(folder: Path, more: int) -> Config:
    """Turn a finished run into an unfinished one of more episodes or, if it goes by them, more steps, which `train`
    then resumes.

    The bits are those of a run that was longer from the start. If this is interrupted, the run is as it was or can be
    resumed.

    Args:
        folder: The folder of the run.
        more: How many more episodes or steps each client is to play.

    Returns:
        The settings of the longer run.

    Raises:
        FedQHDError: If there is no finished run, or nothing is left to continue from.
    """
    where = f"out={str(folder)!r}"
    if more < 1:
        raise FedQHDError(f"extend={more} is not possible: it must be at least 1")
    if not (folder / "config.toml").exists():
        raise FedQHDError(f"{where} holds no run to extend")
    if not (folder / "summary.json").exists():
        raise FedQHDError(f"{where} holds a run that is not finished: resume it first")
    if not checkpoints(folder):
        raise FedQHDError(f"{where} holds no checkpoint to continue from: train again with more episodes")
    config = load_config(folder / "config.toml").replace(out=str(folder))
    length = length_name(config)
    played = read_summary(folder).get(length)
    if played is None:
        raise damaged(folder / SUMMARY, f"its {length} are missing")
    for name in ("summary.json", STOPPED, *DERIVED):
        (folder / name).unlink(missing_ok=True)
    longer = config.replace(**{length: played + more})
    write_bytes(folder / "config.toml", longer.to_toml().encode())
    return longer
