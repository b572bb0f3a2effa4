"""Play a trained policy in a window, or record it as a GIF."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from fedqhd.agents.policy import Policy
from fedqhd.core import rng
from fedqhd.core.errors import FedQHDError

WIDTH = 320
FRAMES_A_SECOND = 25


def has_screen() -> bool:
    """Return whether a window can be opened."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def play(policy: Policy, gif: Path | None, seed: int = 0, longest: int | None = None) -> float:
    """Play one greedy episode.

    Args:
        policy: The policy to play.
        gif: The file to record to, or None to show the episode in a window.
        seed: The seed of the episode.
        longest: The number of frames after which a recording stops, or None for the whole episode.

    Returns:
        The return of the episode, or of the part that was recorded.

    Raises:
        FedQHDError: If the file is not a GIF, the seed is negative or the environment cannot render frames.
    """
    if gif and gif.suffix.lower() != ".gif":
        raise FedQHDError(f"gif={str(gif)!r} is not possible: only GIFs are written, so its name must end in .gif")
    env_seed = rng.env_seed(seed, rng.PUBLIC, "play", 0)
    if not has_screen():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    env = policy.make_env(render_mode="rgb_array" if gif else "human")
    rate = env.metadata.get("render_fps", FRAMES_A_SECOND) / policy.action_repeat
    every = max(1, round(rate / FRAMES_A_SECOND))
    frames: list[Image.Image] = []
    obs, _ = env.reset(seed=env_seed)
    total, step, done = 0.0, 0, False
    while not done and (longest is None or len(frames) < longest):
        if gif and step % every == 0:
            picture = env.render()
            if not isinstance(picture, np.ndarray):
                raise FedQHDError(
                    f"env={policy.env!r} cannot be recorded: render_mode='rgb_array' gives {picture!r:.40}"
                )
            frame = Image.fromarray(picture)
            frame = frame.resize((WIDTH, round(frame.height * WIDTH / frame.width)), Image.Resampling.LANCZOS)
            frames.append(frame.quantize(32))  # few colours keep the file small, and these pictures need no more
        action, _ = policy.predict(obs)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        step += 1
        done = terminated or truncated
    env.close()
    if gif:
        gif.parent.mkdir(parents=True, exist_ok=True)
        duration = round(1000 * every / rate)
        frames[0].save(gif, save_all=True, append_images=frames[1:], duration=duration, loop=0, optimize=True)
    return total
