"""From flags, files and presets to the settings of a run: `resolve` is the one way there."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedqhd.agents.learner import LEARNERS
from fedqhd.core import named, presets
from fedqhd.core.config import Config, defaults_of
from fedqhd.core.errors import FedQHDError, nearest
from fedqhd.core.named import name_of
from fedqhd.core.presets import PLAIN, PRESETS, SETTINGS
from fedqhd.core.registry import Registry
from fedqhd.core.settings import Settings, check_value, coerced, fields_of, groups_of, type_of
from fedqhd.encoders.settings import EncoderSettings
from fedqhd.envs.anchors import AnchorSettings
from fedqhd.envs.make import EnvironmentSettings
from fedqhd.envs.scaling import ScalingSettings
from fedqhd.federation.method import METHODS, LearnerSettings, Method
from fedqhd.federation.settings import AggregationSettings, ParticipationSettings
from fedqhd.federation.wrappers.settings import WRAPPERS
from fedqhd.runs.settings import RunSettings

log = logging.getLogger(__name__)

ALWAYS: tuple[type[Settings], ...] = (RunSettings, EnvironmentSettings, ScalingSettings)
"""Settings that matter to every run."""
CHOICES = ("env", "method", "setting", "agents")
"""Settings that decide which tables of a file count; a table may choose the learner, but none of these."""
SHOWN = 5
"""Of the settings that a note names, at the most."""


def known_classes(*own: type[Settings]) -> list[type[Settings]]:
    """All settings classes of ours, and those of the user's `own` methods and learners."""
    methods, learners = ([kind.Settings for kind in registry.all()] for registry in (METHODS, LEARNERS))
    shared = (LearnerSettings, EncoderSettings, AnchorSettings, ParticipationSettings, AggregationSettings, *WRAPPERS)
    return list(dict.fromkeys([*ALWAYS, *shared, *methods, *learners, *own]))


def own_classes(values: Mapping[str, Any]) -> list[type[Settings]]:
    """The settings classes of those methods and learners among the values that are the user's own."""
    agents = values.get("agents")
    learners = [values.get("learner"), *(agents if isinstance(agents, list | tuple) else [agents])]
    chosen: list[tuple[Registry[Any], Any]] = [
        (METHODS, values.get("method")),
        *((LEARNERS, name) for name in learners),
    ]
    own = [(kinds, str(name)) for kinds, name in chosen if isinstance(name, str) and named.is_custom_name(name)]
    return [kinds.find(name).Settings for kinds, name in own]


class Known:
    """Every setting that there is, ours and those of the user's own methods and learners in `values`."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self.classes = known_classes(*own_classes(values or {}))
        self.fields = fields_of(*self.classes)
        self.home = {name: cls for cls in reversed(self.classes) for name in fields_of(cls)}
        self.title = {name: title for title, names in groups_of(*self.classes).items() for name in names}

    def check_names(self, source: str, values: Mapping[str, Any]) -> None:
        """Refuse names that are no settings."""
        for key in values:
            if key not in self.fields:
                raise FedQHDError(f"{source}unknown setting {key!r}{nearest(key, self.fields)}")

    def value(self, name: str, value: Any) -> Any:
        """A value as its setting's type."""
        f = self.fields[name]
        return coerced(name, value, type_of(self.home[name], name), f.metadata["custom"])


def check_tables(source: str, tables: Mapping[str, Any]) -> None:
    """Refuse tables of a file that belong to nothing."""
    known = (*SETTINGS, *LEARNERS.names, *METHODS.names)
    for name, table in tables.items():
        if isinstance(table, dict):
            if name not in known and ":" not in name:
                raise FedQHDError(
                    f"{source}unknown table {name!r}{nearest(name, known)}: a table bears the name of a setting, a "
                    "learner or a method"
                )
            for choice in CHOICES:
                if choice in table:
                    raise FedQHDError(
                        f"{source}{choice}={table[choice]!r} stands in table {name!r}, and decides which tables count: "
                        "put it above all tables"
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
    """The settings of a run.

    Args:
        given: Settings for this very run, which stand over all others. One that does nothing here is refused.
        file: A TOML file of settings, over the preset. What does nothing here is ignored, with a note.
        preset: "tuned", the settings of the main table; "paper", those that the paper states; or "plain", the
            environment's own file alone. Where there is nothing tuned, "tuned" is "plain".
        shared: Settings for those runs to which they matter, between the preset and the file.
        tuned: The folder of tuned settings.
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
    known = Known(top)
    known.check_names("", {**shared, **given})
    given = {name: known.value(name, value) for name, value in given.items()}
    top = {**top, **given}

    names = {k: known.value(k, top.get(k, known.fields[k].default)) for k in CHOICES}
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
    values = {**chosen, **{k: v for k, v in layers.items() if k in known.fields}, **given}
    values = {k: known.value(k, v) for k, v in values.items() if k in known.fields}
    config = made(values, known)
    refuse_idle(given, config, known)
    idle = sorted(set(from_file) - set(config.values))
    if idle:
        rest = f" and {len(idle) - SHOWN} more settings" if len(idle) > SHOWN else ""
        log.warning("%s: %s%s do nothing for %s and are ignored", file, ", ".join(idle[:SHOWN]), rest, who(config))
    return config


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with classes and functions of the user's own by their names."""

    def name(value: Any) -> Any:
        return name_of(value) if callable(value) else value

    return {k: [name(x) for x in v] if isinstance(v, list | tuple) else name(v) for k, v in values.items()}


def _preset(
    preset: str, names: Mapping[str, Any], method: type[Method], folder: Path, learner: str | None
) -> dict[str, Any]:
    """The tables that a preset puts over the environment's own file."""
    if preset == "paper":
        return presets.paper()
    if preset == PLAIN:
        return {}
    chosen = presets.tuned(names["env"], *method.source(names["setting"]), folder)
    # What was tuned for one learner says nothing of another.
    return {} if chosen is None or (learner and chosen.get("learner", learner) != learner) else chosen


def made(values: Mapping[str, Any], known: Known) -> Config:
    """A checked configuration of the settings that matter among `values`, with defaults for those that are missing."""
    method = METHODS.find(values["method"])
    full = {**defaults_of(*known.classes), **values}
    parts = [*ALWAYS, *method.parts(full)]
    fields = {**fields_of(*ALWAYS), **method.fields(full)}
    kept: dict[str, Any] = {name: full[name] if name in values else f.default for name, f in fields.items()}
    if kept["setting"] == "homogeneous":  # all clients are alike: of what is cycled, the first
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


def who(c: Config) -> str:
    """The method of a run, with what it learns by."""
    learner = f" with learner={c.learner}" if "learner" in c else ""
    return f"method={c.method}{learner} and setting={c.setting}"


def refuse_idle(given: Mapping[str, Any], c: Config, known: Known) -> None:
    """Refuse a setting that was given for this run and does nothing in it."""
    for name, value in given.items():
        f, shown = known.fields[name], list(value) if isinstance(value, tuple) else value
        if name not in c:
            raise FedQHDError(
                f"{name}={shown} does nothing for {who(c)}: it is a setting of {known.title[name]!r}; leave it out"
            )
        if f.metadata["cycled"] and len(value) > len(c.values[name]):
            raise FedQHDError(
                f"{name}={shown} is not possible: setting={c.setting} has one for all clients; give one, or "
                "setting=heterogeneous"
            )
        for other, needed in f.metadata["only"].items():
            if other in c and c.values[other] != needed:
                raise FedQHDError(
                    f"{name}={shown} does nothing with {other}={c.values[other]}: it goes with {other}={needed}"
                )


def load_config(file: Path) -> Config:
    """The settings of a run as it recorded them. Those of an older version that do nothing any more are left out."""
    values = presets.read_toml(file)
    known = Known(values)
    known.check_names(f"{file}: ", values)
    return made({name: known.value(name, value) for name, value in values.items()}, known)


def default_of(name: str) -> Any:
    """The default of one of our settings."""
    return defaults_of(*known_classes())[name]


FIELDS: Mapping[str, dataclasses.Field[Any]] = fields_of(*known_classes())
"""Every setting that comes with the package."""
