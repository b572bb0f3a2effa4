"""Resolves flags, files and presets into the settings of a run; `resolve` is the only way to do so."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedqhd.agents.learner import LEARNERS
from fedqhd.core import named, presets, trust
from fedqhd.core.config import Config, defaults_of
from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.length import BY_STEPS, check_length, without_effect, without_idle_length
from fedqhd.core.named import name_of
from fedqhd.core.presets import PLAIN, PRESETS, SETTINGS
from fedqhd.core.registry import Registry
from fedqhd.core.settings import Settings, check_value, coerced, fields_of, groups_of, type_of
from fedqhd.encoders.settings import EncoderSettings
from fedqhd.envs.adapt import full_id
from fedqhd.envs.anchors import AnchorSettings
from fedqhd.envs.make import EnvironmentSettings
from fedqhd.envs.scaling import ScalingSettings
from fedqhd.federation.method import METHODS, LearnerSettings, Method
from fedqhd.federation.settings import AggregationSettings, ParticipationSettings
from fedqhd.federation.wrappers.settings import WRAPPERS
from fedqhd.runs.callback import callback_name
from fedqhd.runs.settings import RunSettings

log = logging.getLogger(__name__)

ALWAYS: tuple[type[Settings], ...] = (RunSettings, EnvironmentSettings, ScalingSettings)
"""Settings that matter to every run."""
CHOICES = ("env", "method", "setting", "agents")
"""Settings that decide which tables of a file apply. A table may set the learner, but none of these."""
MAX_NAMED = 5
"""The largest number of ignored settings that a warning names."""


def known_classes(*own: type[Settings]) -> list[type[Settings]]:
    """Return all settings classes of the package and those in `own`, each once."""
    methods, learners = ([kind.Settings for kind in registry.all()] for registry in (METHODS, LEARNERS))
    shared = (LearnerSettings, EncoderSettings, AnchorSettings, ParticipationSettings, AggregationSettings, *WRAPPERS)
    return list(dict.fromkeys([*ALWAYS, *shared, *methods, *learners, *own]))


def own_classes(values: Mapping[str, Any]) -> list[type[Settings]]:
    """Return the settings classes of the user's own methods and learners that `values` names."""
    agents = values.get("agents")
    learners = [values.get("learner"), *(agents if isinstance(agents, list | tuple) else [agents])]
    chosen: list[tuple[Registry[Any], Any]] = [
        (METHODS, values.get("method")),
        *((LEARNERS, name) for name in learners),
    ]
    own = [(kinds, str(name)) for kinds, name in chosen if isinstance(name, str) and named.is_custom_name(name)]
    return [kinds.find(name).Settings for kinds, name in own]


class KnownSettings:
    """All settings: those of the package and those of the user's own methods and learners that `values` names."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.classes = known_classes(*own_classes(values or {}))
        self.fields = fields_of(*self.classes)
        self.home = {name: cls for cls in reversed(self.classes) for name in fields_of(cls)}
        self.title = {name: title for title, names in groups_of(*self.classes).items() for name in names}

    def check_names(self, source: str, values: Mapping[str, Any]) -> None:
        """Raise FedQHDError if a key of `values` is not a setting; the message begins with `source`."""
        for key in values:
            if key not in self.fields:
                raise FedQHDError(f"{source}unknown setting {key!r}{nearest(key, self.fields)}")

    def value(self, name: str, value: Any) -> Any:
        """Return a value converted to the type of its setting; raise FedQHDError if it has the wrong type."""
        f = self.fields[name]
        return coerced(name, value, type_of(self.home[name], name), f.metadata["custom"])


def check_tables(source: str, tables: Mapping[str, Any]) -> None:
    """Raise FedQHDError for tables of a settings file that never apply, or that hold one of CHOICES.

    Args:
        source: The beginning of the message.
        tables: The contents of the file.
    """
    known = (*SETTINGS, *LEARNERS.names, *METHODS.names)
    for name, table in tables.items():
        if isinstance(table, dict):
            if name not in known and ":" not in name:
                raise FedQHDError(
                    f"{source}unknown table {name!r}{nearest(name, known)}: a table has the name of a setting, a "
                    "learner or a method"
                )
            for choice in CHOICES:
                if choice in table:
                    raise FedQHDError(
                        f"{source}{choice}={table[choice]!r} in table {name!r} decides which tables apply: put it "
                        "above all tables"
                    )
            check_tables(source, table)


def resolve(
    given: Mapping[str, Any],
    file: str = "",
    *,
    preset: str = PRESETS[0],
    shared: Mapping[str, Any] | None = None,
    tuned: Path = presets.TUNED,
) -> Config:
    """Resolve the settings of a run.

    Args:
        given: Settings for this run, which override all others. A setting that has no effect is refused.
        file: A TOML file of settings, which overrides the preset. Settings without effect are ignored with a warning.
        preset: "tuned" for the settings of the main table, "paper" for those that the paper states, or "plain" for the
            environment's own file alone. If nothing is tuned for the run, "tuned" is the same as "plain".
        shared: Settings between the preset and the file. Those without effect are ignored.
        tuned: The folder of tuned settings.

    Raises:
        FedQHDError: If a setting is unknown, has no effect, has a wrong value or contradicts another one.
    """
    if preset not in (*PRESETS, PLAIN):
        raise FedQHDError(
            f"preset={preset!r} is unknown{nearest(preset, PRESETS)}: choose from {', '.join((*PRESETS, PLAIN))}"
        )
    given, shared = _named(given), _named(shared or {})
    tables = presets.read_toml(Path(file)) if file else {}
    source = f"config={file!r}: "
    check_tables(source, tables)
    top = {**shared, **{k: v for k, v in tables.items() if not isinstance(v, dict)}, **given}
    known = KnownSettings(top)
    known.check_names("", {**shared, **given})
    given = {name: known.value(name, value) for name, value in given.items()}
    top = {**top, **given}

    names = {k: known.value(k, top.get(k, known.fields[k].default)) for k in CHOICES}
    names["env"] = full_id(names["env"])
    own_file, method = presets.environment_file(names["env"]), METHODS.find(names["method"])
    pair = [names["setting"], method.name]
    in_file = {**shared, **presets.flattened(tables, pair), **given}
    over = _preset(preset, names, method, tuned, in_file.get("learner"))
    base = defaults_of(LearnerSettings) | presets.flattened(own_file, pair[:1])
    learner = (base | presets.flattened(over, pair) | in_file)["learner"]
    chosen = {**names, "learner": known.value("learner", learner)}
    order = method.table_names(chosen)

    from_file = presets.flattened(tables, order)
    known.check_names(source, from_file)
    layers = {**presets.flattened(own_file, order), **presets.flattened(over, order), **shared, **from_file}
    layers = without_idle_length(layers, {**shared, **from_file, **given})
    values = {**chosen, **{k: v for k, v in layers.items() if k in known.fields}, **given}
    values = {k: known.value(k, v) for k, v in values.items() if k in known.fields}
    config = make_config(values, known)
    check_length(given, config)
    refuse_unused(given, config, known)
    idle = sorted(set(from_file) - set(config.values))
    if idle:
        rest = f" and {len(idle) - MAX_NAMED} more settings" if len(idle) > MAX_NAMED else ""
        log.warning(
            "%s: %s%s do nothing for %s and are ignored",
            file,
            ", ".join(idle[:MAX_NAMED]),
            rest,
            describe_method(config),
        )
    return config


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with the user's own classes and functions replaced by their names."""

    def name(value: Any) -> Any:
        return name_of(value) if callable(value) else value

    return {k: [name(x) for x in v] if isinstance(v, list | tuple) else name(v) for k, v in values.items()}


def _preset(
    preset: str, names: Mapping[str, Any], method: type[Method], folder: Path, learner: str | None
) -> dict[str, Any]:
    """Return the tables of a preset, which override the environment's own file."""
    if preset == "paper":
        return presets.paper()
    if preset == PLAIN:
        return {}
    chosen = presets.tuned(names["env"], *method.source(names["setting"]), folder)
    # Settings that were tuned for one learner do not suit another.
    return {} if chosen is None or (learner and chosen.get("learner", learner) != learner) else chosen


def make_config(values: Mapping[str, Any], known: KnownSettings) -> Config:
    """Return a checked configuration of the settings that matter, with defaults for those that `values` lacks.

    Raises:
        FedQHDError: If a value is wrong or contradicts another one.
    """
    method = METHODS.find(values["method"])
    full = {**defaults_of(*known.classes), **values}
    parts = [*ALWAYS, *method.parts(full)]
    fields = {**fields_of(*ALWAYS), **method.fields(full)}
    fields = {name: f for name, f in fields.items() if name not in without_effect(full)}
    kept: dict[str, Any] = {name: full[name] if name in values else f.default for name, f in fields.items()}
    kept["env"] = full_id(kept["env"])
    if kept["setting"] == "homogeneous":  # all clients are alike and take the first of the values to cycle through
        kept |= {name: kept[name][:1] for name, f in fields.items() if f.metadata["cycled"]}
    for name, f in fields.items():
        check_value(name, kept[name], f)
    config = Config(kept)

    def need(holds: bool, name: str, rule: str) -> None:
        if not holds:
            raise FedQHDError(f"{name}={config.values[name]} is not possible: {rule}")

    for part in parts:
        part.check(config, need)
    method.check(config, need)
    return config


def describe_method(c: Config) -> str:
    """Return the method, learner and setting of a run for messages."""
    learner = f" with learner={c.learner}" if "learner" in c else ""
    return f"method={c.method}{learner} and setting={c.setting}"


def refuse_unused(given: Mapping[str, Any], c: Config, known: KnownSettings) -> None:
    """Raise FedQHDError for a setting that was given for this run and has no effect in it."""
    for name, value in given.items():
        f, shown = known.fields[name], list(value) if isinstance(value, tuple) else value
        if name not in c and not (name in BY_STEPS and value == 0):
            raise FedQHDError(
                f"{name}={shown} does nothing for {describe_method(c)}: it is a setting of {known.title[name]!r}; "
                "leave it out"
            )
        if f.metadata["cycled"] and len(value) > len(c.values[name]):
            raise FedQHDError(
                f"{name}={shown} is not possible: setting={c.setting} has one for all clients; give one value, or "
                "setting=heterogeneous"
            )
        for other, needed in f.metadata["only"].items():
            if other in c and c.values[other] != needed:
                raise FedQHDError(
                    f"{name}={shown} does nothing with {other}={c.values[other]}: it needs {other}={needed}"
                )


def code_names(values: Mapping[str, Any]) -> list[str]:
    """Return the names of code, `module:name`, in settings and in the tables of a file."""
    found = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            found += code_names(value)
            continue
        for text in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(text, str) or (key in FIELDS and key not in CODE):
                continue
            name = callback_name(text) if key == "callbacks" else text
            # Of an own method or learner any setting may be a name. The entry dqn:64 of `agents` is none.
            if trust.is_code(name) and (key != "agents" or named.is_custom_name(name)):
                found.append(name)
    return found


def check_code(file: Path, given: Iterable[str] = ()) -> None:
    """Raise FedQHDError if the settings of a run name code that the user has neither made, given nor trusted.

    Args:
        file: The config.toml in the folder of the run.
        given: Names that the user has given himself in this call.
    """
    if file.exists() and not file.is_file():  # reading a device or a pipe may never end
        raise FedQHDError(f"{file} is not a regular file: a folder with the results of fedqhd.train is needed")
    trust.check_code(code_names(presets.read_toml(file)), file.parent, given)


def load_config(file: Path, given: Iterable[str] = ()) -> Config:
    """Read the settings that a run recorded, without settings of older versions that no longer have an effect.

    Args:
        file: The config.toml in the folder of the run.
        given: Names of code that the user has given himself in this call; see `fedqhd.core.trust`.
    """
    check_code(file, given)
    values = presets.read_toml(file)
    known = KnownSettings(values)
    known.check_names(f"{file}: ", values)
    return make_config({name: known.value(name, value) for name, value in values.items()}, known)


def default_of(name: str) -> Any:
    """Return the default of a setting of the package."""
    return defaults_of(*known_classes())[name]


FIELDS: Mapping[str, dataclasses.Field[Any]] = fields_of(*known_classes())
"""All settings of the package, by name."""
CODE = {"agents", *(name for name, f in FIELDS.items() if f.metadata["custom"])}
"""The settings of the package whose values may name the user's own code."""
