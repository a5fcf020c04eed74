"""From a config file to cells: sections of a grid, overrides, and what they choose.

A config file gives a ConfigDict of the flat fields of ``spec``, and perhaps a ``grid``
laid over them. Everything that trains takes plain values, never a config.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ml_collections
from ml_collections import config_dict

from ffjax import data
from ffjax.config import goodness_params, spec
from ffjax.config.spec import RunSpec, Way
from ffjax.errors import UserError, shown

# The fields in which a cell differs from the flat ones, perhaps with ``seeds``.
Fields = Mapping[str, Any]
Section = Sequence[Fields]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of a grid with all its seeds, and the sections that ask for it."""

    id: str
    spec: RunSpec
    seeds: tuple[int, ...]
    sections: tuple[str, ...] = ()


def default() -> ml_collections.ConfigDict:
    """The flat fields with the paper's values, as a config file returns them."""
    fields = {
        name: config_dict.placeholder(spec.kind(name)) if value is None else value
        for name, value in spec.DEFAULTS.items()
    }
    return ml_collections.ConfigDict(fields)


def product(**axes: Any) -> tuple[dict[str, Any], ...]:
    """Every combination of the axes' values, as cells of a section.

    An axis is a tuple or list of values, or a single value that all cells share.
    """
    values = [
        axis if isinstance(axis, tuple | list) else (axis,) for axis in axes.values()
    ]
    return tuple(
        dict(zip(axes, combination, strict=True))
        for combination in itertools.product(*values)
    )


def grid(
    sections: Mapping[str, Section | Callable[[], Section]],
    section: str | None = None,
    *,
    apart: Sequence[str] = (),
    **fields: Any,
) -> ml_collections.ConfigDict:
    """What ``get_config(section=None)`` of a file with sections returns.

    Args:
      sections: by name, the cells of each or a function that gives them.
      section: what was asked for: a name, or several with commas between; None: all.
      apart: sections that only run when asked for.
      **fields: flat fields that all cells share unless they say otherwise.
    """
    chosen = [name for name in sections if name not in apart]
    if section is not None:
        chosen = section.split(",")
    for name in chosen:
        if name not in sections:
            raise UserError(
                f"config section {name!r}: must be one of {', '.join(sections)}"
            )
    config = default()
    for name, value in fields.items():
        spec.check_name(name)
        config[name] = value
    config.grid = {}
    for name in chosen:
        cells = sections[name]
        config.grid[name] = tuple(cells() if callable(cells) else cells)
    return config


def expand(
    config: ml_collections.ConfigDict, overrides: Fields | None = None
) -> list[Cell]:
    """The cells of a config: one, or those of its grid, each once.

    Args:
      config: the flat fields as the config file gives them, and perhaps ``grid``:
        section -> cells.
      overrides: the fields that the user set on the command line. Of a grid, those of
        the method that it varies choose among its cells, and all others apply to every
        cell.
    """
    check_config(config)
    overrides = dict(overrides or {})
    flat = {name: config[name] for name in config if name != "grid"}
    if "grid" not in config:
        cell = _make_cell({**flat, **overrides}, ())
        spec.check_used(cell.spec, overrides)
        _check_kept(cell.spec, overrides)
        return [cell]
    sections = _check_grid(config.grid)
    plain = _grid_cells(sections, flat, {})
    chosen = {
        name: value for name, value in overrides.items() if _is_varied(name, plain)
    }
    forced = {name: overrides[name] for name in overrides if name not in chosen}
    cells = _grid_cells(sections, flat, forced)
    _check_chosen(chosen)
    kept = [cell for cell in cells.values() if _is_chosen(cell.spec, chosen)]
    if not kept:
        asked = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
        varied = "; ".join(
            f"{name}: {_values(getattr(cell.spec, name) for cell in cells.values())}"
            for name in chosen
        )
        raise UserError(f"no cell of the grid has {asked} (the grid has {varied})")
    return kept


def check_config(config: object, path: str = "") -> None:
    """Raises a UserError unless this is what a config file must give.

    Args:
      config: what it gave.
      path: of the file.
    """
    where = f"config={path!r}" if path else "config"
    advice = "start from ffjax.config.default() or ffjax.config.grid()"
    if not isinstance(config, ml_collections.ConfigDict):
        raise UserError(
            f"{where}: get_config gave {shown(config)}; must be a ConfigDict: {advice}"
        )
    for name in config:
        if name != "grid":
            spec.check_name(str(name))
    for name in spec.ABOUT:
        if name not in config:
            raise UserError(
                f"{where}: the ConfigDict of get_config has no field {name!r}; {advice}"
            )
    if "grid" in config:
        _check_grid(config.grid)


def way(config: ml_collections.ConfigDict, overrides: Fields | None = None) -> Way:
    """How a config and the command line want its cells to be run."""
    given = {**{name: config[name] for name in config}, **(overrides or {})}
    ways: dict[str, Any] = {
        name: given.get(name, spec.DEFAULTS[name]) for name in spec.names("way")
    }
    return Way(**ways)


def _check_grid(grid: object) -> dict[str, Section]:
    """The sections of a grid, or a UserError for what is none."""
    words = "must map names of sections to tuples of dicts of fields"
    if not isinstance(grid, Mapping | ml_collections.ConfigDict):
        raise UserError(f"config: grid={shown(grid)}; {words}")
    sections = {}
    for name in grid:
        cells = grid[name]
        if not isinstance(cells, tuple | list):
            raise UserError(f"config: grid section {name!r} is {shown(cells)}; {words}")
        if not cells:
            raise UserError(f"config: grid section {name!r} has no cells")
        for fields in cells:
            if not isinstance(fields, Mapping | ml_collections.ConfigDict):
                raise UserError(
                    f"config: grid section {name!r} has the cell {shown(fields)}; "
                    f"{words}"
                )
        sections[str(name)] = cells
    if not sections:
        raise UserError(f"config: the grid has no sections; {words}")
    return sections


def _grid_cells(
    sections: Mapping[str, Section], flat: Fields, forced: Fields
) -> dict[str, Cell]:
    """The cells of all sections by id; those that sections share are there once."""
    cells: dict[str, Cell] = {}
    for section, members in sections.items():
        for fields in members:
            cell = _make_cell({**flat, **fields, **forced}, (section,))
            known = cells.get(cell.id)
            if known is not None:
                _check_same_file(known.spec.dataset, cell.spec.dataset)
                seeds = tuple(dict.fromkeys(known.seeds + cell.seeds))
                asked = tuple(dict.fromkeys((*known.sections, section)))
                cell = Cell(cell.id, cell.spec, seeds, asked)
            cells[cell.id] = cell
    return cells


def _check_same_file(one: str, other: str) -> None:
    """Refuses two files of one name: their records would have one name, too."""
    if one != other and os.path.realpath(one) != os.path.realpath(other):
        raise UserError(
            f"dataset={other!r}: the grid has another file of that name, {one!r}; "
            "give one of them another name"
        )


def _make_cell(fields: Fields, sections: tuple[str, ...]) -> Cell:
    for name in fields:
        spec.check_name(name)
    ways = {name: fields.get(name, spec.DEFAULTS[name]) for name in spec.names("way")}
    run = spec.make_spec(
        **{name: value for name, value in fields.items() if name not in ways}
    )
    known = data.DATASETS.get(run.dataset)
    if known is not None:  # of a file only its arrays say
        spec.check_shape(run, known.image_shape, len(known.class_names))
    seeds = ways["seeds"]
    if seeds == () or seeds == []:
        raise UserError("seeds=(): give at least one seed")
    for name, value in ways.items():
        spec.ABOUT[name].domain.check(name, value)
    return Cell(spec.cell_id(run), run, tuple(dict.fromkeys(seeds)), sections)


_SEVERAL_FORMS = ("goodness_params", "widths", "pool")


def _check_kept(run: RunSpec, given: Fields) -> None:
    """Raises a UserError for a field set by hand that the run does not use."""
    for name, value in given.items():
        if spec.ABOUT[name].role == "way" or name in _SEVERAL_FORMS:
            continue
        if getattr(run, name) != value:
            raise UserError(
                f"{name}={shown(value)}: not used by a run with trainer="
                f"{run.trainer!r} and loss={run.loss!r}"
            )


def _is_varied(name: str, cells: Mapping[str, Cell]) -> bool:
    """Whether a field tells cells of a grid apart, so that a value chooses some."""
    if name not in spec.names("method"):
        return False
    values = {getattr(cell.spec, name) for cell in cells.values()}
    is_unused = name in spec.PARAM_FIELDS.values() and values == {None}
    return len(values) > 1 or is_unused


def _check_chosen(chosen: Fields) -> None:
    """An impossible value is an error of its own, not a choice of no cells."""
    for name, value in chosen.items():
        if name == "goodness_params":  # whose names depend on the cell's function
            goodness_params.parse(value)
        else:
            spec.make_spec(**{name: value})


def _is_chosen(run: RunSpec, chosen: Fields) -> bool:
    return all(
        _is_same(name, getattr(run, name), value) for name, value in chosen.items()
    )


def _is_same(name: str, value: object, wanted: object) -> bool:
    if name == "goodness_params":
        asked = goodness_params.parse(str(wanted)).items()
        return asked <= goodness_params.parse(str(value)).items()
    if isinstance(value, float) and isinstance(wanted, float):
        return math.isclose(value, wanted, rel_tol=1e-9)
    return value == wanted


def _values(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in dict.fromkeys(values) if value is not None)
