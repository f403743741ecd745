"""Pydantic models of requests and answers; some are made at run time for the served model and the limits."""

from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    StringConstraints,
    create_model,
    model_validator,
)

from bert.serving.messages import ENCODE, PREDICT, Description
from bert.serving.openai_form import MOST_INPUTS
from bert.serving.settings import Limits
from data.text.columns import joined_parts, value_of

_MOST_KEYS = 16
_TRUNCATED: Any = Annotated[int, Field(description="inputs longer than the model reads: their ends were left out")]
_MOST_TOP_K = 100
_INPUT_TYPE: Any = (Literal["passage", "query"], "passage")  # the kind of text, which decides its prefix
_EXAMPLES = {
    "text": "Anna Lindqvist opened her bakery in 1987.",
    "text_pair": "The bakery was opened in 1987.",
    "question": "Who opened the bakery?",
    "context": "Anna Lindqvist opened her bakery in 1987.",
}


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str


class RequestObject(BaseModel):
    """Base of all requests: unknown keys are refused, unless a subclass allows them."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _few_keys(cls, value: Any) -> Any:
        """Refuse an object with many keys at once, before each unknown key becomes an error of its own."""
        if isinstance(value, dict) and len(value) > _MOST_KEYS:
            raise ValueError(f"the object has {len(value)} keys")
        return value


class OpenAIsRequest(RequestObject):
    """Base of requests from OpenAI's clients: unknown keys are ignored, as other servers may know them."""

    model_config = ConfigDict(extra="ignore")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Fill(Strict):
    token: str
    probability: float


class Candidate(Strict):
    text: str
    probability: float
    start: int
    end: int


class Entity(Candidate):
    """An entity from character `start` of the text to `end`, which is after its last character."""

    type: str


def _result(name: str, meaning: str | None, **fields: Any) -> Any:
    """Make the pydantic model of a result. Fields are given by type, or by (type, default) if they are optional."""
    pairs: Any = {field: kind if isinstance(kind, tuple) else (kind, ...) for field, kind in fields.items()}
    return create_model(name, __base__=Strict, __doc__=meaning, **pairs)


_ANSWER = '`answer` is "" for no answer; places are characters of the context.'
_PLACE = {"probability": float, "start": int, "end": int}
_FILLED = "A text with its masks filled, and the most likely tokens at each mask."
_RESULTS: dict[str, Any] = {
    "masked-lm": _result("FilledMasks", _FILLED, filled=str, masks=list[list[Fill]]),
    "encoder": _result("Vector", "The vector of a text.", vector=list[float], tokens=(int | None, None)),
    "sequence-classification": _result("Class", None, label=str, probability=float, probabilities=dict[str, float]),
    "several labels": _result("Labels", None, labels=list[str], probabilities=dict[str, float]),
    "regression": _result("Value", "The number that a regression gives.", value=float),
    "token-classification": _result("Entities", None, entities=list[Entity]),
    "question-answering": _result(
        "Answer", _ANSWER, answer=str, **_PLACE, answers=list[Candidate], no_answer_probability=(float | None, None)
    ),
}


def text_fields(description: Description, kind: str) -> dict[str, bool]:
    """Names of an input's texts in the order that the model takes them, and whether each is required."""
    if kind == PREDICT and description.task == "question-answering":
        return {"question": True, "context": True}
    if kind == ENCODE or 2 not in description.num_texts:
        return {"text": True}
    return {"text": True, "text_pair": description.num_texts == (2,)}


def request_schemas(description: Description, kind: str, limits: Limits) -> tuple[type[BaseModel], type[BaseModel]]:
    """Make the pydantic models of a request of POST /predict or /encode, and of its answer."""
    text = Annotated[
        str, StringConstraints(strict=True, min_length=1, max_length=limits.max_characters), AfterValidator(not_blank)
    ]
    texts, name = text_fields(description, kind), kind.title()
    fields: dict[str, Any] = {field: (text, ...) if needed else (text | None, None) for field, needed in texts.items()}
    values: Any = create_model(f"{name}Input", __base__=RequestObject, **fields)
    values.model_config["json_schema_extra"] = {"example": {field: _EXAMPLES[field] for field in texts}}
    columns = description.columns if kind == PREDICT else ()
    single: Any = BeforeValidator(lambda given: _with_text(given, columns), values | text)
    item = Annotated[values, single] if texts.get("text") and sum(texts.values()) == 1 else values
    inputs = Annotated[list[item], Field(min_length=1, max_length=limits.max_inputs), FailFast()]  # type: ignore[valid-type]
    top_k: dict[str, Any] = {"input_type": _INPUT_TYPE} if kind == ENCODE else {}
    if kind == PREDICT and description.task in ("masked-lm", "question-answering"):
        top_k["top_k"] = (Annotated[int, Field(ge=1, le=_MOST_TOP_K, strict=True)], description.top_k)
    request = create_model(f"{name}Request", __base__=RequestObject, inputs=(inputs, ...), **top_k)
    task = "encoder" if kind == ENCODE else "regression" if description.is_regression else description.task
    task = "several labels" if description.gives_labels and kind == PREDICT else task
    result = _RESULTS[task]
    return request, create_model(f"{name}Answer", results=(list[result], ...), truncated=(_TRUNCATED, ...))  # type: ignore[valid-type]


def embeddings_schema(description: Description, encode: type[BaseModel]) -> type[BaseModel]:
    """Make the pydantic model of a request of POST /v1/embeddings from the model of POST /encode."""
    listed: Any = get_args(get_type_hints(encode, include_extras=True)["inputs"])[0]
    inputs: Any = Annotated[listed, Field(min_length=1, max_length=MOST_INPUTS), FailFast()]
    sizes = (description.hidden_size, *(description.vectors.dimensions if description.vectors else ()))
    fields: dict[str, Any] = {
        "inputs": (Annotated[inputs, BeforeValidator(_openais_input)], Field(alias="input")),
        "model": (str, description.name),
        "encoding_format": (Literal["float", "base64"], "float"),
        "dimensions": (Literal[sizes] | None, None),
        "user": (str, ""),
        "input_type": _INPUT_TYPE,
    }
    return create_model("EmbeddingsRequest", __base__=OpenAIsRequest, **fields)


def _openais_input(given: Any) -> Any:
    """Make a list from a single text. Raises ValueError for tokens, which some clients send by default."""
    if isinstance(given, list) and given and isinstance(given[0], int | list):
        raise ValueError("must be texts, not tokens; with LangChain pass check_embedding_ctx_length=False")
    return [given] if isinstance(given, str) else given


def _with_text(given: Any, columns: tuple[str, ...]) -> Any:
    """Convert an input to an object with `text`: a plain text, or columns that the model's training joined."""
    if isinstance(given, str):
        return {"text": given}
    parts = joined_parts(columns[0]) if len(columns) == 1 else ()
    if not parts or not isinstance(given, dict) or not all(part in given for part in parts):
        return given
    return {**{key: value for key, value in given.items() if key not in parts}, "text": value_of(given, columns[0])}


def not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text
