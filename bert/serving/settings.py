"""Settings of the server: the model, the address, and the limits on requests."""

from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may use.

    Attributes:
        max_body_bytes: of one request.
        max_inputs: texts (pairs, questions) of one request.
        max_characters: of one text.
        max_queue: inputs that wait for the model; a request that does not fit is refused with 429.
        timeout_seconds: from the arrival of a request to its answer; then 504.
        read_seconds: for a request to arrive whole, and for a client to take its answer.
        max_connections: open at a time; beyond it, those that have waited longest without a whole request are closed.
        max_batch_size: inputs that run together; 1: one at a time.
        max_batch_tokens: tokens that run together, with padding. A longer input runs alone, in parts.
        max_wait_ms: how long an idle model waits for further inputs to run with the first.
    """

    max_body_bytes: int = 1 << 20
    max_inputs: int = 64
    max_characters: int = 10_000
    max_queue: int = 512
    timeout_seconds: float = 30.0
    read_seconds: float = 10.0
    max_connections: int = 1000
    max_batch_size: int = 64
    max_batch_tokens: int = 4096
    max_wait_ms: float = 0.0

    def check(self) -> None:
        """Raise ValueError for values that allow no request."""
        for field in fields(self):
            value, least = getattr(self, field.name), 0 if field.name == "max_wait_ms" else 1
            if not least <= value < float("inf"):
                raise ValueError(f"--{field.name.replace('_', '-')} {value} must be at least {least}; raise it")
        if self.max_inputs > self.max_queue:
            raise ValueError(
                f"--max-inputs {self.max_inputs} must be at most --max-queue {self.max_queue}: a full request could "
                "never be taken; lower the one or raise the other"
            )


@dataclass(frozen=True)
class ModelSettings:
    """How the model process opens the model; as the flags of run_predict.py."""

    model: str
    task: str | None = None
    top_k: int = 5
    max_seq_length: int | None = None
    device: str = "auto"
    cpu_threads: int = 0
    vocab_file: str | None = None
    do_lower_case: bool | None = None


@dataclass(frozen=True)
class ServerSettings:
    """The command line of the server."""

    model: ModelSettings
    limits: Limits
    host: str
    port: int
    access_log: bool

    def check(self) -> None:
        """Raise ValueError with the flag, the rule and the remedy."""
        self.limits.check()
        if not 0 <= self.port < 65536:
            raise ValueError(f"--port {self.port} must be from 0 (any free port) to 65535; choose another")
        if self.model.top_k < 1:
            raise ValueError(f"--top-k {self.model.top_k} must be at least 1; raise it")
        if self.model.vocab_file is not None and not Path(self.model.vocab_file).is_file():
            raise ValueError(f"--vocab-file {self.model.vocab_file} must be an existing file; check the path")
