"""`--to-hub NAME`: pushes a model to a Hugging Face hub as one commit, with all of its files or none.

huggingface_hub reads HF_ENDPOINT and HF_TOKEN. Weights that arrived before a failure are not sent again.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from huggingface_hub import HfApi, configure_http_backend, constants, get_token
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id
from huggingface_hub.utils.logging import set_verbosity

from bert.checkpoints.directories import CARD_FILE
from bert.conversion.converting import REPORT_FILE
from bert.conversion.hub_settings import HubRequest
from bert.conversion.model_description import CONFIG_FILES
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import LABELS_FILE, READER_FILE, TASK_FILE
from bert.files import temporary_folder
from bert.printable import printable
from data.fetching.transfer import HttpsSession, reason_of

_NO_MODEL = (".gitattributes", CARD_FILE, "LICENSE")  # what a new repository may hold
_OF_A_MODEL = ["*.safetensors", "*.bin", "*.h5", "*.msgpack", "*.pdparams", "*.index.json"]  # an update removes them
_OF_A_MODEL += ["vocab.*", "merges.txt", "*.model", "*token*.json", *CONFIG_FILES, LABELS_FILE, TASK_FILE, READER_FILE]
_REASONS = {
    401: "it does not accept the token (401); check HF_TOKEN or --hub-token-file",
    403: "the token may not write there (403); take one that may write, or a name of your own account",
}


def share(request: HubRequest, make: Callable[[Path, str], dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """Convert a model and push it; returns the report of the conversion, and the model's address.

    The account, the name and the place of the hub are checked before the weights are read.

    Args:
        make: (a new folder, the name of the model) -> report; converts the model to Hugging Face's format.
    """
    name, hub = str(request.to_hub), constants.ENDPOINT
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise ConversionError(
            f"to_hub={name} must be NAME or OWNER/NAME of letters, digits, '-', '_' and '.'; change --to-hub"
        ) from None
    if constants.HF_HUB_OFFLINE:
        raise ConversionError(f"to_hub={name}: HF_HUB_OFFLINE forbids connections; unset it")
    api = HfApi(endpoint=hub, token=_token(request.hub_token_file))
    configure_http_backend(HttpsSession)
    set_verbosity(logging.CRITICAL)  # its warnings have signed addresses
    with _error_text(name):
        name = name if "/" in name else f"{api.whoami()['name']}/{name}"
    kept_files = _kept_files(api, name, request)
    with temporary_folder("to-hub") as temporary:
        folder = temporary / "model"
        report = make(folder, name)
        with _error_text(name):
            api.create_repo(name, private=request.hub_private, exist_ok=True)
            commit = api.upload_folder(
                repo_id=name,
                folder_path=folder,
                commit_message="BERT on Paddle: weights, tokenizer and model card",
                delete_patterns=_OF_A_MODEL,
                ignore_patterns=[REPORT_FILE, *kept_files],  # the report has paths of this machine
            )
            seen = "private" if api.model_info(name).private else "public: everybody can download it"
    note = f"; its {CARD_FILE} is kept, --hub-update replaces it" if kept_files else ""
    return report, f"{hub}/{name} ({seen}), commit {commit.oid}{note}"


def _token(file: Path | None) -> str:
    """The hub's access token; no message repeats it."""
    source = "HF_TOKEN" if file is None else f"hub_token_file={file}"
    token = get_token() if file is None else file.expanduser().read_text(encoding="utf-8", errors="replace").strip()
    if not token:
        raise ConversionError(
            f"{source} is {'not set' if file is None else 'empty'}: a token that may write is needed, from "
            f"{constants.ENDPOINT}/settings/tokens; set HF_TOKEN, or name a file with it: --hub-token-file"
        )
    if not re.fullmatch("[!-~]+", token):
        raise ConversionError(f"{source} must be a token alone, one word without other characters; correct it")
    return token


def _kept_files(api: HfApi, name: str, request: HubRequest) -> list[str]:
    """Files of the repository that the push does not replace; refuses a repository that must not change."""
    hub = constants.ENDPOINT
    with _error_text(name):
        try:
            info = api.model_info(name)
        except RepositoryNotFoundError as error:
            if error.response.status_code == 404:
                return []
            raise
    names = [file.rfilename for file in info.siblings or []]
    if request.hub_private and not info.private:
        raise ConversionError(
            f"{name} is public on {hub}, whatever --hub-private says; make it private in its settings there, or choose "
            "another --to-hub"
        )
    if request.hub_update:
        return []
    if files := sorted(set(names) - set(_NO_MODEL)):
        raise ConversionError(
            f"{name} is taken on {hub}, it has {', '.join(files[:3])}; choose another --to-hub, or make a new commit "
            "in it with --hub-update (earlier ones stay in its history)"
        )
    return [CARD_FILE] if CARD_FILE in names else []


@contextmanager
def _error_text(name: str) -> Iterator[None]:
    """Turn an error of the hub into one sentence, without the signatures in its addresses."""
    try:
        yield
    except ConversionError:
        raise
    except (requests.RequestException, RuntimeError, KeyError, TypeError, AttributeError, ValueError) as error:
        # upload_folder wraps what a thread met in a RuntimeError, and the hub's verdict on the card in a ValueError
        cause = error if isinstance(error, requests.RequestException) else error.__cause__ or error
        said = re.sub(r"\?\S*", "", " ".join(str(getattr(cause, "server_message", None) or error).split()))[:400]
        status = getattr(getattr(cause, "response", None), "status_code", 0)
        if isinstance(error, ValueError) and cause is not error:
            reason = f"it refuses the card ({said}); correct the flags or {CARD_FILE}"
        elif isinstance(cause, requests.HTTPError):
            reason = _REASONS.get(status, f"it answered {status} ({said})")
        elif isinstance(cause, requests.RequestException):
            reason = f"it cannot be reached ({reason_of(cause)})"
        else:
            reason = f"it does not answer as a hub does ({said}); check HF_ENDPOINT"
        message = f"{name} was not pushed to {constants.ENDPOINT}: {reason}. The same command tries again"
        raise ConversionError(printable(message)) from None
