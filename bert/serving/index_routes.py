"""Defines the routes of a served index: the JSON of requests and answers, and their inputs for the model process."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, StringConstraints, create_model

from bert.search import Ranking
from bert.serving.messages import ADD, DELETE, SEARCH, STATE, RowOptions, SearchOptions
from bert.serving.schemas import RequestObject, Strict, not_blank
from bert.serving.settings import Limits

INDEX_POSTS = (f"/{SEARCH}", f"/{ADD}", f"/{DELETE}")
_MOST_HITS, _MOST_IDS, _MOST_VALUES = 100, 1000, 100
_Text = Annotated[str, StringConstraints(strict=True, max_length=1000)]
_Whole = Annotated[int, Field(strict=True, ge=-(1 << 63), lt=1 << 63)]
_Number = _Whole | Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Value = Annotated[bool, Field(strict=True)] | _Number | _Text
_Id = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000), AfterValidator(not_blank)]
_Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=200)]
Ask = Callable[[Request, str, tuple[str, ...], Any], Awaitable[Response]]


class Range(RequestObject):
    """A range of numbers from `from` to `to`, both included; one of them may be left out."""

    lower: _Number | None = Field(None, alias="from")
    upper: _Number | None = Field(None, alias="to")


class Place(Strict):
    """A part of the passage, from character `start` to `end`, which is after its last character."""

    text: str
    start: int
    end: int


class Hit(Strict):
    """A found passage; `line` is its line in the file `source`, `part` its number in a long document."""

    id: str
    part: int
    source: str
    line: int | None
    score: float
    text: str
    sentence: Place
    columns: dict[str, str | bool | int | float]


class SearchAnswer(Strict):
    hits: list[Hit]
    generation: int


class AddAnswer(Strict):
    """`ids` are the ids of the rows, in order; `replaced` counts earlier passages with these ids."""

    ids: list[str]
    replaced: int
    generation: int


class DeleteAnswer(Strict):
    """`deleted` is the number of deleted passages."""

    deleted: int
    generation: int


class IndexAnswer(Strict):
    """`generation` is the number of changes so far."""

    passages: int
    bytes: int
    generation: int
    columns: list[str]
    files: int
    model: str


def add_index_routes(app: FastAPI, limits: Limits, ask: Ask, problems: dict[int | str, dict[str, Any]]) -> None:
    """Add the routes of an index to the app; `ask` sends an input to the model process and returns the answer."""

    async def search(request: Request, body: Any) -> Response:
        filters = {name: _plain(value) for name, value in body.filters.items()}
        return await ask(request, SEARCH, (body.query,), SearchOptions(body.top_k, filters, body.ranking, body.rerank))

    async def add(request: Request, body: Any) -> Response:
        columns = tuple({k: v for k, v in (row.model_extra or {}).items() if v is not None} for row in body.rows)
        options = RowOptions(tuple(row.id for row in body.rows), columns)
        return await ask(request, ADD, tuple(row.text for row in body.rows), options)

    async def delete(request: Request, body: Any) -> Response:
        return await ask(request, DELETE, tuple(body.ids), None)

    async def state(request: Request) -> Response:
        return await ask(request, STATE, (), None)

    bodies = _requests(limits)
    for handle, kind, answer, summary in (
        (search, SEARCH, SearchAnswer, "Passages that answer a query"),
        (add, ADD, AddAnswer, "Add texts to the index; an id that it has is replaced"),
        (delete, DELETE, DeleteAnswer, "Delete what has one of some ids"),
    ):
        handle.__annotations__["body"] = bodies[kind]
        of_post: Any = {"methods": ["POST"], "operation_id": kind.replace("/", "_"), "response_class": Response}
        responses: Any = {200: {"model": answer}, **problems}
        app.add_api_route(f"/{kind}", handle, summary=summary, responses=responses, **of_post)
    unasked = {status: problems[status] for status in (429, 503, 504)}
    of_get: Any = {"responses": {200: {"model": IndexAnswer}, **unasked}, "response_class": Response}
    app.add_api_route(f"/{STATE}", state, summary="Size and state of the index", **of_get)


def _requests(limits: Limits) -> dict[str, type[BaseModel]]:
    """The pydantic models of requests, by kind."""
    long_text: Any = Annotated[
        str, StringConstraints(strict=True, min_length=1, max_length=limits.max_characters), AfterValidator(not_blank)
    ]
    value: Any = _Value | Range | Annotated[list[_Value], Field(min_length=1, max_length=_MOST_VALUES)]
    filters: Any = Annotated[dict[_Name, value], Field(max_length=16)]
    top_k: Any = Annotated[int, Field(ge=1, le=_MOST_HITS, strict=True)]
    rerank: Any = Annotated[bool, Field(strict=True)] | top_k | None
    search = create_model(
        "SearchRequest",
        __base__=RequestObject,
        query=(long_text, ...),
        top_k=(top_k, 10),
        filters=(filters, Field(default_factory=dict)),
        ranking=(Ranking, "hybrid"),
        rerank=(rerank, Field(None, description="whether, or how many hits; by default if there is a reranker")),
    )
    search.model_config["json_schema_extra"] = {"example": {"query": "how do I undo a commit", "top_k": 3}}

    class IndexRow(RequestObject):
        """A text; all keys but `id` and `text` are values to filter by."""

        model_config = ConfigDict(
            extra="allow", json_schema_extra={"example": {"id": "a-1", "text": "Undo a commit.", "year": 2026}}
        )
        __pydantic_extra__: dict[str, _Value | None]
        id: _Id | None = None
        text: long_text

    rows: Any = Annotated[list[IndexRow], Field(min_length=1, max_length=limits.max_inputs), FailFast()]
    ids: Any = Annotated[list[_Id], Field(min_length=1, max_length=_MOST_IDS), FailFast()]
    return {
        SEARCH: search,
        ADD: create_model("AddRequest", __base__=RequestObject, rows=(rows, ...)),
        DELETE: create_model("DeleteRequest", __base__=RequestObject, ids=(ids, ...)),
    }


def _plain(value: Any) -> Any:
    """Convert the filter of a request to the form that the index takes."""
    if isinstance(value, Range):
        return {name: number for name, number in (("from", value.lower), ("to", value.upper)) if number is not None}
    return value
