"""Settings and command line of the server. The descriptions of the fields are the flags' help."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from bert.config.plain_commands import parser_of, settings_from
from bert.config.settings_base import Settings
from bert.inference.settings import ModelSettings
from bert.interpreter import shell_command
from bert.printable import printable

_DESCRIPTION = (
    "Serve a trained model: JSON over HTTP, and a page to try it in a browser. Inputs of concurrent requests run "
    "together. There is no encryption: put a proxy that has it before the server, and leave --host as it is, unless "
    "all who can reach the port may use the model. With BERT_API_KEY in the environment, requests must have that key."
)
_EXAMPLES = (
    "results/classify-tickets",
    "results/quickstart --task masked-lm --port 8080 --max-inputs 16",
    "results/vectors-docs --index results/index-docs",
)
_ORIGIN = re.compile(r"[a-z][a-z+.-]*://[^/\sA-Z*?#]+")


class Address(Settings):
    host: str = Field("127.0.0.1", description="address to listen on; 127.0.0.1 is this machine only")
    port: int = Field(8000, ge=0, lt=65536, description="port to listen on; 0: any that is free")
    allowed_hosts: str = Field(
        "localhost",
        description="names by which clients address the server (Host), separated by commas; IP addresses always pass; "
        "*: any name, also the names of pages that attack the network of their reader",
    )
    allow_origin: str = Field(
        "", description="pages of other sites that may ask from a browser (CORS): https://NAME,https://NAME; *: any"
    )
    access_log: bool = Field(False, description="log each request on standard error")

    @field_validator("allow_origin")
    @classmethod
    def _are_origins(cls, origins: str) -> str:
        for origin in origins.replace(",", " ").split():
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"--allow-origin {origin} must be as a browser sends it: https://NAME or https://NAME:PORT, in "
                    "lower case, without a path or a / at the end"
                )
        return origins


class Limits(Settings):
    """Limits on one request and on all requests together."""

    max_body_bytes: int = Field(4 << 20, ge=1, description="largest body of a request; beyond it 413")
    max_inputs: int = Field(64, ge=1, description="texts, pairs or questions of one request")
    max_characters: int = Field(10_000, ge=1, description="characters of one text; beyond it 422")
    max_queue: int = Field(512, ge=1, description="inputs that may wait for the model; beyond it 429")
    timeout_seconds: float = Field(30.0, ge=1, description="time from the arrival of a request to its answer; then 504")
    read_seconds: float = Field(
        10.0, ge=1, description="time for a request to arrive whole, then 408, and for a client to take its answer"
    )
    max_connections: int = Field(
        1000, ge=1, description="open connections; beyond it the server closes the longest idle ones"
    )
    max_batch_size: int = Field(64, ge=1, description="inputs that run together; 1: one at a time")
    max_batch_tokens: int = Field(
        4096, ge=1, description="tokens that run together, with padding; a longer input runs alone, in parts"
    )
    max_wait_ms: float = Field(0.0, ge=0, description="how long an idle model waits for inputs to run with the first")

    @model_validator(mode="after")
    def _full_request_fits(self) -> Self:
        if self.max_inputs > self.max_queue:
            raise ValueError(
                f"--max-inputs {self.max_inputs} must be at most --max-queue {self.max_queue}: a full request could "
                "never be taken; lower the one or raise the other"
            )
        return self


class IndexSettings(Settings):
    """Settings of the index that is served with the model."""

    index: Path | None = Field(
        None,
        description=f"index to search and change, as {shell_command('bert.indexing')} makes it; or a file or folder of "
        "texts, of which results/index-NAME is made first, and used again while file and model are unchanged",
    )
    reranker: str | None = Field(
        None,
        description="folder of a reranker that sorts the first hits again, or none (default: MODEL/reranker, if any)",
    )

    @field_validator("index")
    @classmethod
    def _exists(cls, path: Path | None) -> Path | None:
        if path is not None and not path.exists():
            raise ValueError(f"--index {path} must be an existing index, file or folder; check the path")
        return path


class ServerSettings(Address, ModelSettings, Limits, IndexSettings):
    """All settings of the server, as flat as the flags."""


def parse_settings(argv: Sequence[str] | None) -> ServerSettings:
    groups: dict[str, type[Settings]] = {"address": Address, "model": ModelSettings, "search": IndexSettings}
    groups["limits"] = Limits
    parser = parser_of(ServerSettings, _DESCRIPTION, "bert.serving", groups, _EXAMPLES)
    settings = settings_from(ServerSettings, parser, argv)
    key = os.environ.get("BERT_API_KEY", "key").strip()
    if not key or printable(key) != key:
        problem = "has bytes that are not UTF-8 or control characters" if key else "is set but empty"
        raise ValueError(f"BERT_API_KEY {problem}; give it the key, or unset it to serve without one")
    return settings
