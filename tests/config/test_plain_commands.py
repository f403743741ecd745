"""Command lines of commands that do not train: flags from fields, and all mistakes of a line together."""

from pathlib import Path
from typing import Annotated, Literal, Self

import pytest
from pydantic import Field, model_validator

from bert.config.flags import Flag
from bert.config.plain_commands import parser_of, read_flags
from bert.config.setting_errors import SeveralMistakes
from bert.config.settings_base import Settings


class HarvestRequest(Settings):
    field: Annotated[Path, Flag(is_positional=True, placeholder="FIELD")] = Field(description="where the crop is")
    barn: Annotated[Path, Flag(name="--to", hidden_aliases=("--barn-dir",))] = Field(description="where the crop goes")
    tools: Literal["scythe", "sickle"] = Field("scythe", description="what cuts")
    crops: tuple[Literal["rye", "oats"], ...] = Field(("rye",), description="what is cut")
    helpers: Annotated[tuple[str, ...], Flag(is_repeatable=True, aliases=("--hand",))] = Field(
        (), description="who helps"
    )
    rows: Annotated[int | None, Flag(unit="ROWS", default_text="all rows")] = Field(None, gt=0, description="how many")
    binding: Annotated[Literal["twine", "wire"], Flag(value_alone="wire")] = Field("twine", description="how")
    dry: Annotated[bool, Flag(hidden_aliases=("--dried",))] = Field(False, description="dry it")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.tools == "sickle" and self.binding == "wire":
            raise SeveralMistakes(
                ["a sickle cuts too little for wire; pass --binding twine", "no wire is left; omit it"]
            )
        return self


def read(line: str) -> HarvestRequest:
    return read_flags(HarvestRequest, line.split(), description="Bring in the harvest.", program="harvest")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("", {"tools": "scythe", "crops": ("rye",), "helpers": (), "rows": None, "dry": False}),
        ("--crops oats rye --rows 7", {"crops": ("oats", "rye"), "rows": 7}),
        ("--crops oats --crops rye", {"crops": ("rye",)}),
        ("--helpers Ann Bob --hand Cy", {"helpers": ("Ann", "Bob", "Cy")}),
        ("--rows none", {"rows": None}),
        ("--helpers none", {"helpers": ("none",)}),
        ("--binding", {"binding": "wire"}),
        ("--dry --no-dry", {"dry": False}),
        ("--dried", {"dry": True}),
        ("--no-dried --tools sickle", {"dry": False, "tools": "sickle"}),
    ],
)
def test_flags_set_the_fields(line, values):
    request = read(f"north --to there {line}")
    assert (request.field, request.barn) == (Path("north"), Path("there"))
    assert {name: getattr(request, name) for name in values} == values
    assert read(f"north --barn-dir there {line}") == request


def test_a_boolean_flag_does_not_take_the_positional_argument():
    request = read("--to there --dry north")
    assert request.dry is True and request.field == Path("north")


def test_all_mistakes_of_a_line_are_reported_together(capsys):
    with pytest.raises(SystemExit) as ended:
        read("--rows 0 --tools scyth --crops oats barley --hepers")
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: --hepers is not a flag; did you mean --helpers?",
        "error: FIELD must be given (where the crop is)",
        "error: --to must be given (where the crop goes)",
        "error: tools=scyth must be one of scythe, sickle; did you mean scythe?",
        "error: crops=barley must be one of rye, oats; change --crops",
        "error: rows=0 must be greater than 0; change --rows",
    ]


@pytest.mark.parametrize(
    ("line", "errors"),
    [
        (
            "north --to there --tools sickle --binding wire",
            ["a sickle cuts too little for wire; pass --binding twine", "no wire is left; omit it"],
        ),
        ("north south --to there", ["south is one word too many; drop it, or see --help"]),
        ("north --to", ["argument --to: expected one argument; see --help"]),
        (
            "north --to there --rows many",
            ["rows=many must be a valid integer, unable to parse string as an integer; change --rows"],
        ),
    ],
)
def test_each_mistake_is_one_line(line, errors, capsys):
    with pytest.raises(SystemExit):
        read(line)
    assert capsys.readouterr().err.splitlines() == [f"error: {error}" for error in errors]


def test_help_shows_what_a_field_says():
    text = " ".join(parser_of(HarvestRequest, "Bring in the harvest.", "harvest").format_help().split())
    assert "Bring in the harvest. usage: harvest FIELD --to TO [flags]" in text.replace("BARN", "TO")
    assert "--rows ROWS how many (default: all rows)" in text and "--tools scythe|sickle what cuts" in text
    assert "--binding [twine|wire] how (default: twine)" in text and "--barn-dir" not in text and "--dried" not in text
    assert "--helpers STR [STR ...], --hand STR [STR ...]" in text
