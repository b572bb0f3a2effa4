"""The settings of a run: one frozen dataclass that is the TOML file, the flags and the record."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.named import name_of
from fedqhd.runs.checks import check
from fedqhd.runs.choices import AGGREGATORS, ATTACKS, DQN_METHODS, ENGINES, LEARNERS, QHD_METHODS, SETTINGS


def _f(default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True)
class Config:
    """Every setting of `fedqhd train`; what is not given comes from the environment's file in configs/."""

    env: str = _f("CartPole-v1", "environment: a Gymnasium id, or module:Env")
    method: str = _f("fedqhd", "what is trained", (*QHD_METHODS, *DQN_METHODS))
    setting: str = _f("homogeneous", "one encoder for all clients, or one each", SETTINGS)
    learner: str = _f("replay", "how a client learns", LEARNERS)
    clients: int = _f(5, "number of clients, N")
    episodes: int = _f(600, "training episodes a client")
    action_repeat: int = _f(1, "steps of the environment for which an action is kept")
    round_episodes: int = _f(50, "episodes between federations, K")
    agents: tuple[str, ...] = _f((), "fedqhd: kinds of the clients, cycled, e.g. qhd dqn:64 dqn:128x128 (all qhd)")
    dynamics: tuple[str, ...] = _f((), "worlds that differ: NAME=LOW:HIGH, drawn for each client, e.g. length=0.3:1")
    encoder: tuple[str, ...] = _f(
        ("fourier",), "encoders fourier, complex, symbolic or module:name: the first (homogeneous) or cycled"
    )
    dims: tuple[int, ...] = _f((1000,), "dimensions D_i: the first (homogeneous) or cycled (heterogeneous)")
    sigma: float = _f(1.5, "bandwidth of the encoder, in units of the scaled state")
    sigma_spread: float = _f(0.5, "heterogeneous: sigma_i = sigma * U[1 - spread, 1 + spread]")
    scaling: str = _f(
        "auto",
        "scale states by random rollouts (auto: and their distance), the environment's box, or given bounds",
        ("auto", "rollout", "box", "bounds"),
    )
    scale_low: tuple[float, ...] = _f((), "scaling=bounds: the value of each state variable that becomes -4")
    scale_high: tuple[float, ...] = _f((), "scaling=bounds: the value of each state variable that becomes 4")
    rollout_steps: int = _f(5000, "random steps by which states are scaled and anchors found; fewer if a step is slow")
    anchors: int = _f(200, "number of anchor states, m")
    anchor_source: str = _f(
        "rollout", "where anchors come from", ("rollout", "uniform", "mix", "file", "teacher", "visited")
    )
    anchor_file: str = _f("", "anchor_source=file: an .npy or .npz of raw states, one a row")
    compile: str = _f("warm-start", "how a teacher is compiled into W", ("warm-start", "overwrite"))
    lam: float = _f(1e-2, "ridge of the compilation, lambda")
    weights: str | tuple[float, ...] = _f(
        "uniform", "federation weights: uniform, steps, precision, or one number a client"
    )
    aggregate: str = _f("auto", "what the server makes of the replies, or module:rule", AGGREGATORS)
    uplink: str = _f("full", "how finely clients send W or Q: as it is, or rounded", ("full", "float16", "int8"))
    secure: str = _f("off", "mask replies, so that the server sees but their mean (engine=flower)", ("off", "secagg+"))
    secure_range: float = _f(1000.0, "secure: the largest number that a client may have in its W or Q")
    dp_clip: float = _f(
        0.0, "differential privacy: L2 norm to which a client's change of the teacher is clipped (0: off)"
    )
    dp_noise: float = _f(1.0, "differential privacy: noise, in units of 2 dp_clip")
    dp_delta: float = _f(1e-5, "differential privacy: the delta at which epsilon is reported")
    max_magnitude: float = _f(1e9, "a reply with a larger number is refused")
    min_clients: int = _f(1, "valid replies that a round needs")
    too_few: str = _f("stop", "fewer than min_clients: end the run, or play the round again", ("stop", "repeat"))
    participation: float = _f(1.0, "share of the clients that take part in a round")
    present: tuple[str, ...] = _f((), "clients that join late or leave: CLIENT=FIRST:LAST rounds, e.g. 3=10:20 4=5:")
    late: float = _f(0.0, "chance that a reply comes a round late")
    late_weight: float = _f(0.5, "factor on the weight of a late reply; 0 drops it")
    attack: str = _f("none", "what lying clients send, to test aggregation", ("none", *ATTACKS))
    liars: float = _f(0.2, "attack: share of the clients that lie")
    gamma: float = _f(0.99, "discount from one action to the next")
    step: str = _f(
        "normalised", "is eta the step size, or that times B lambda_max(E[Phi Phi^T])?", ("plain", "normalised")
    )
    eta: float = _f(0.8, "step size; step=normalised: below 2 is stable")
    eta_decay: float = _f(1.0, "factor on the step size (eta or lr) after each episode")
    epsilon_start: float = _f(1.0, "exploration in the first episode")
    epsilon_end: float = _f(0.001, "exploration at the least")
    epsilon_decay: float = _f(0.985, "factor on exploration after each episode")
    batch_size: int = _f(32, "replay: transitions an update, B")
    update_every: int = _f(1, "replay: steps between updates")
    replay_size: int = _f(10_000, "replay: transitions kept a client")
    features: str = _f(
        "auto", "replay: hypervectors kept as float32 or int8, or made anew", ("auto", "recompute", "float32", "int8")
    )
    target_every: int = _f(1, "replay: episodes between target syncs, tau")
    fit_lam: float = _f(0.3, "least-squares: ridge of a fit")
    ridge: str = _f("given", "least-squares: fit_lam as given, or by leave-one-out error", ("given", "leave-one-out"))
    sweeps: int = _f(10, "least-squares: sweeps a fit")
    trace: float = _f(0.8, "least-squares: share of the return that followed in a target; the rest is max Q(s', a)")
    double_q: str = _f("off", "least-squares: max Q(s', a) at most what the last round's W says", ("off", "clipped"))
    damping: float = _f(0.3, "least-squares: first step towards a fit, rho")
    refit: float = _f(0.1, "least-squares: share of new transitions in the memory that calls for a fit")
    clip: str = _f("returns", "least-squares: keep targets in the range of returns met", ("returns", "off"))
    explore: str = _f("epsilon", "least-squares: explore by chance, or by an optimism bonus", ("epsilon", "bonus"))
    bonus: float = _f(0.1, "explore=bonus: optimism, in units of the range of returns")
    exchange: str = _f("model", "send W or Q on anchors, or normal equations (one encoder)", ("model", "statistics"))
    widths: tuple[int, ...] = _f((128,), "DQN: widths of two hidden layers, the first (homogeneous) or cycled")
    lr: float = _f(1e-3, "DQN: step size of Adam")
    gradient_steps: int = _f(1, "DQN: minibatches at each update")
    learning_starts: int = _f(1000, "DQN: steps before the first update")
    target_steps: int = _f(500, "DQN: steps between target syncs")
    target_tau: float = _f(1.0, "DQN: share of the way that the target goes at a sync")
    huber: float = _f(1.0, "DQN: TD error from which on the loss grows linearly")
    hold: int = _f(1, "DQN: steps for which an exploratory action is kept")
    fit_steps: int = _f(100, "DQN: Adam steps on a teacher")
    fit_batch: int = _f(64, "DQN: anchors a step on a teacher")
    temperature: float = _f(1.0, "distilled-feddqn: softmax(Q / temperature)")
    eval_episodes: int = _f(20, "greedy evaluation episodes a client after training")
    keep: int = _f(2, "checkpoints kept while a run lasts")
    engine: str = _f(
        "auto", "clients in this process, one process a core, or Flower's simulation: the results are the same", ENGINES
    )
    seed: int = _f(0, "seed of every random draw")
    out: str = _f("", "folder for results (default: runs/ENV-METHOD-SETTING-LEARNER-SEED)")

    def __post_init__(self) -> None:
        check(self)

    @property
    def folder(self) -> Path:
        env = self.env.replace("/", "-").replace(":", "-")
        return Path(self.out or f"runs/{env}-{self.method}-{self.setting}-{self.learner}-{self.seed}")

    def to_toml(self) -> str:
        return tomli_w.dumps({k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()})


FIELDS = {f.name: f for f in dataclasses.fields(Config)}
TYPES: Mapping[str, Any] = typing.get_type_hints(Config)


OWN = ("env", "encoder", "aggregate")
"""Settings that may be things of the user's own."""


def named(value: Any) -> Any:
    """A thing of the user's own by its name; what can stand in a TOML file as it is."""
    plain = value is None or isinstance(value, str | int | float | list | tuple | dict)
    return value if plain else name_of(value)


def coerce(name: str, value: Any) -> Any:
    """The value as its setting's type, or one sentence on why it is none. A whole number may stand for a float."""

    def as_type(kind: Any, v: Any) -> Any:
        if isinstance(kind, types.UnionType):
            kind = next(k for k in typing.get_args(kind) if (k is str) == isinstance(v, str))
        if typing.get_origin(kind) is tuple:
            if not isinstance(v, list | tuple):
                raise TypeError
            return tuple(as_type(typing.get_args(kind)[0], x) for x in v)
        if kind is float and isinstance(v, int) and not isinstance(v, bool):
            return float(v)
        if not isinstance(v, kind) or isinstance(v, bool):
            raise TypeError
        return v

    if name in OWN:
        value = tuple(map(named, value)) if isinstance(value, list | tuple) else named(value)
        value = (value,) if name == "encoder" and isinstance(value, str) else value
    try:
        return as_type(TYPES[name], value)
    except TypeError:
        wanted = FIELDS[name].type if isinstance(FIELDS[name].type, str) else TYPES[name].__name__
        raise FedQHDError(f"{name}={value!r} has the wrong type: {wanted} is needed") from None


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise FedQHDError(f"config={str(path)!r} does not exist") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FedQHDError(f"config={str(path)!r} cannot be read as TOML: {error}") from error


def known_keys(source: str, values: Mapping[str, Any]) -> dict[str, Any]:
    for key in values:
        if key not in FIELDS:
            raise FedQHDError(f"{source} has the unknown setting {key!r}{nearest(key, FIELDS)}")
    return {k: coerce(k, v) for k, v in values.items()}


def resolve(given: Mapping[str, Any], file: str = "") -> Config:
    """The settings of a run. Flags win over the given file, that over the environment's file in configs/
    (its tables [heterogeneous], [online], [dqn], ... over its other lines), and that over the defaults above."""
    own = known_keys("the command line", given)
    if file:
        own = known_keys(f"config={file!r}", read_toml(Path(file))) | own
    env = own.get("env", FIELDS["env"].default)
    preset = resources.files("fedqhd") / "configs" / f"{str(env).replace('/', '-')}.toml"
    defaults = tomllib.loads(preset.read_text()) if preset.is_file() else {}
    tables = {k: defaults.pop(k) for k in (*SETTINGS, *LEARNERS, "dqn") if k in defaults}
    base = known_keys(preset.name, defaults)
    chosen = {k: (base | own).get(k, FIELDS[k].default) for k in ("setting", "learner", "method")}
    for table in (chosen["setting"], "dqn" if chosen["method"] in DQN_METHODS else chosen["learner"]):
        base |= known_keys(preset.name, tables.get(table, {}))
    return Config(**(base | own))
