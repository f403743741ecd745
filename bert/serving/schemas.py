"""The JSON of requests and answers, as pydantic models made for the model that is served and the limits."""

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    create_model,
    model_validator,
)

from bert.serving.settings import Limits
from bert.serving.worker import Description

_MOST_KEYS = 16
_MOST_TOP_K = 100
_EXAMPLES = {
    "text": "Anna Lindqvist opened her bakery in 1987.",
    "text_pair": "The bakery was opened in 1987.",
    "question": "Who opened the bakery?",
    "context": "Anna Lindqvist opened her bakery in 1987.",
}


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Given(BaseModel):
    """The base of what clients send."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_keys(cls, value: Any) -> Any:
        """Refused before each unknown key becomes an error of its own."""
        if isinstance(value, dict) and len(value) > _MOST_KEYS:
            raise ValueError(f"the object has {len(value)} keys")
        return value


class Fill(Strict):
    token: str
    probability: float


class FilledMasks(Strict):
    """A text with its masks filled, and the most likely tokens at each mask."""

    filled: str
    masks: list[list[Fill]]


class Vector(Strict):
    """The mean of the last hidden states over all tokens."""

    vector: list[float]


class Class(Strict):
    label: str
    probability: float
    probabilities: dict[str, float]


class Value(Strict):
    """The number that a regression gives."""

    value: float


class Entity(Strict):
    """`start` and `end` are characters of the text, `end` after the last."""

    text: str
    type: str
    start: int
    end: int
    probability: float


class Entities(Strict):
    entities: list[Entity]


class Candidate(Strict):
    text: str
    probability: float
    start: int
    end: int


class Answer(Strict):
    """`answer` is "" for no answer; places are characters of the context."""

    answer: str
    probability: float
    start: int
    end: int
    answers: list[Candidate]
    no_answer_probability: float | None = None


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str


_RESULTS: dict[str, type[Strict]] = {
    "masked-lm": FilledMasks,
    "encoder": Vector,
    "sequence-classification": Class,
    "token-classification": Entities,
    "question-answering": Answer,
}


Schemas = tuple[type[BaseModel], type[BaseModel]]  # of a request and its answer


def text_fields(description: Description) -> dict[str, bool]:
    """The names of an input's texts, in the order that the model takes, and whether each must be given."""
    if description.task == "question-answering":
        return {"question": True, "context": True}
    return {"text": True, **({"text_pair": description.num_texts == (2,)} if 2 in description.num_texts else {})}


def predict_schemas(description: Description, limits: Limits) -> Schemas:
    """Of POST /predict."""
    result = Value if description.is_regression else _RESULTS[description.task]
    has_top_k = description.task in ("masked-lm", "question-answering")
    return _schemas("Predict", text_fields(description), result, limits, description.top_k if has_top_k else None)


def encode_schemas(limits: Limits) -> Schemas:
    """Of POST /encode."""
    return _schemas("Encode", {"text": True}, Vector, limits, None)


def _schemas(
    name: str, texts: dict[str, bool], result: type[Strict], limits: Limits, default_top_k: int | None
) -> Schemas:
    text = Annotated[
        str, StringConstraints(strict=True, min_length=1, max_length=limits.max_characters), AfterValidator(_not_blank)
    ]
    fields: dict[str, Any] = {field: (text, ...) if needed else (text | None, None) for field, needed in texts.items()}
    example: Any = {field: _EXAMPLES[field] for field in texts}
    given: Any = create_model(f"{name}Input", __base__=Given, **fields)
    given.model_config["json_schema_extra"] = {"example": example}
    inputs = Annotated[list[given], Field(min_length=1, max_length=limits.max_inputs), FailFast()]
    top_k: dict[str, Any] = {}
    if default_top_k is not None:
        top_k["top_k"] = (Annotated[int, Field(ge=1, le=_MOST_TOP_K, strict=True)], default_top_k)
    request = create_model(f"{name}Request", __base__=Given, inputs=(inputs, ...), **top_k)
    return request, create_model(f"{name}Answer", results=(list[result], ...))  # type: ignore[valid-type]


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text
