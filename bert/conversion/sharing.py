"""`--to-hub NAME`: a model becomes one commit on a Hugging Face hub, which has all of its files or none.

huggingface_hub reads HF_ENDPOINT and HF_TOKEN. Weights that arrived before a failure are not sent again.
"""

import logging
import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import requests
from huggingface_hub import HfApi, configure_http_backend, constants, get_token
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id
from huggingface_hub.utils.logging import set_verbosity

from bert.checkpoints.directories import CARD_FILE
from bert.conversion.converting import REPORT_FILE, Request, convert
from bert.conversion.model_description import CONFIG_FILES, LABELS_FILE, READER_FILE, TASK_FILE
from bert.conversion.raw_tensors import ConversionError, printable
from data.fetching.transfer import TIMEOUT_SECONDS, HttpsSession, reason_of

T = TypeVar("T")
_NO_MODEL = (".gitattributes", CARD_FILE, "LICENSE")  # what a new repository may hold
_OF_A_MODEL = ["*.safetensors", "*.bin", "*.h5", "*.msgpack", "*.pdparams", "*.index.json"]  # an update removes them
_OF_A_MODEL += ["vocab.*", "merges.txt", "*.model", "*token*.json", *CONFIG_FILES, LABELS_FILE, TASK_FILE, READER_FILE]
_MESSAGE = "BERT on Paddle: weights, tokenizer and model card"


def share(request: Request) -> tuple[dict[str, Any], str]:
    """Convert a model and push it; returns the report of the conversion, and where the model is.

    The account, the name and the place of the hub are checked before the weights are read.
    """
    hub = Hub(str(request.to_hub), _token(request.hub_token_file))
    hub.open(request.hub_private, request.hub_update)
    with tempfile.TemporaryDirectory(prefix="to-hub-") as temporary:
        folder = Path(temporary) / "model"
        report = convert(replace(request, target=folder, name=hub.name))
        return report, hub.push(folder, request.hub_private)


def _token(file: Path | None) -> str:
    """The token, which no message repeats."""
    try:
        token = get_token() if file is None else file.expanduser().read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        token = "\n"
    if not token:
        where = "HF_TOKEN is not set" if file is None else f"hub_token_file={file} is empty"
        raise ConversionError(
            f"{where}: a token that may write is needed, from {constants.ENDPOINT}/settings/tokens; set HF_TOKEN, or "
            "name a file with it: --hub-token-file"
        )
    if not re.fullmatch("[!-~]+", token):
        where = "HF_TOKEN" if file is None else f"hub_token_file={file}"
        raise ConversionError(f"{where} must be a token alone, one word without other characters; correct it")
    return token


class Hub:
    """A repository of a hub, NAME or OWNER/NAME."""

    def __init__(self, name: str, token: str) -> None:
        try:
            validate_repo_id(name)
        except HFValidationError:
            raise ConversionError(
                f"to_hub={name} must be NAME or OWNER/NAME of letters, digits, '-', '_' and '.'; change --to-hub"
            ) from None
        if constants.HF_HUB_OFFLINE:
            raise ConversionError(f"to_hub={name}: HF_HUB_OFFLINE forbids connections; unset it")
        self.name, self._api = name, HfApi(endpoint=constants.ENDPOINT, token=token)
        self._kept: list[str] = []  # files of the repository that this push does not replace
        configure_http_backend(HttpsSession)
        set_verbosity(logging.CRITICAL)  # its warnings have signed addresses

    def open(self, private: bool, update: bool) -> None:
        """Complete the name with that of the account; refuse a repository that this push should not change."""
        account = self._ask(lambda: self._api.whoami()["name"])
        self.name = self.name if "/" in self.name else f"{account}/{self.name}"
        try:
            info = self._ask(lambda: self._api.model_info(self.name, timeout=TIMEOUT_SECONDS))
        except RepositoryNotFoundError:
            return
        names = [file.rfilename for file in info.siblings or []]
        files = sorted(name for name in names if name not in _NO_MODEL)
        self._kept = [CARD_FILE] if CARD_FILE in names and not update else []
        if private and not info.private:
            raise ConversionError(
                f"{self.name} is public on {constants.ENDPOINT}, whatever --hub-private says; make it private in its "
                "settings there, or choose another --to-hub"
            )
        if files and not update:
            raise ConversionError(
                f"{self.name} is taken on {constants.ENDPOINT}, it has {', '.join(files[:3])}; choose another "
                "--to-hub, or make a new commit in it with --hub-update (earlier ones stay in its history)"
            )

    def push(self, folder: Path, private: bool) -> str:
        """Make the repository if there is none, and the commit; returns its address."""

        def upload() -> Any:
            try:
                return self._api.upload_folder(
                    repo_id=self.name,
                    folder_path=folder,
                    commit_message=_MESSAGE,
                    delete_patterns=_OF_A_MODEL,
                    ignore_patterns=[REPORT_FILE, *self._kept],  # the report has paths of this machine
                )
            except RuntimeError as error:  # of a thread that sends a file
                raise error.__cause__ or error from None

        try:
            self._ask(lambda: self._api.create_repo(self.name, private=private, exist_ok=True))
            commit = self._ask(upload)
        except RepositoryNotFoundError:
            raise self._failed("it does not show the new repository to this token") from None
        is_private = self._ask(lambda: self._api.model_info(self.name, timeout=TIMEOUT_SECONDS)).private
        seen = "private" if is_private else "public: everybody can download it"
        kept = f"; its {CARD_FILE} is kept, --hub-update replaces it" if self._kept else ""
        return f"{constants.ENDPOINT}/{self.name} ({seen}), commit {commit.oid}{kept}"

    def _ask(self, action: Callable[[], T]) -> T:
        """The answer of the hub; a refusal as one sentence.

        Raises:
            RepositoryNotFoundError: it has no such repository, or hides it.
        """
        try:
            return action()
        except requests.HTTPError as error:
            status = error.response.status_code if error.response is not None else 0
            if isinstance(error, RepositoryNotFoundError) and status == 404:
                raise
            reasons = {
                401: "it does not accept the token (401); check HF_TOKEN or --hub-token-file",
                403: "the token may not write there (403); take one that may write, or a name of your own account",
            }
            said = _shown(getattr(error, "server_message", None) or error)
            raise self._failed(reasons.get(status, f"it answered {status} ({said})")) from None
        except requests.RequestException as error:
            raise self._failed(f"it cannot be reached ({reason_of(error)})") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, ConversionError):
                raise
            if isinstance(error.__cause__, requests.HTTPError):  # the hub read the card
                raise self._failed(f"it refuses the card ({_shown(error)}); correct the flags or {CARD_FILE}") from None
            raise self._failed(f"it does not answer as a hub does ({_shown(error)}); check HF_ENDPOINT") from None

    def _failed(self, reason: str) -> ConversionError:
        return ConversionError(
            printable(f"{self.name} was not pushed to {constants.ENDPOINT}: {reason}. The same command tries again")
        )


def _shown(error: object) -> str:
    """What a hub says, on one line, without the signatures of addresses."""
    return re.sub(r"\?\S*", "", " ".join(str(error).split()))[:400]
