"""Downloads models that PaddleNLP knows by name (bert-base-uncased) through PaddleNLP into its cache."""

import re
import warnings
from pathlib import Path

from bert.conversion.locating import is_there
from bert.conversion.raw_tensors import ConversionError

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_FILES = (["model_state.pdparams"], ["config.json", "model_config.json"], ["vocab.txt"])


def resolve(source: str) -> Path:
    """The path if it exists, otherwise the folder to which PaddleNLP downloads the model of that name.

    Raises:
        ConversionError: neither a path nor a name that can be fetched.
    """
    path = Path(source).expanduser()
    if source and is_there(path):
        return path
    mistyped = "/" in source and path.parent.is_dir()
    if mistyped or not _NAME.fullmatch(source) or source.startswith("."):
        raise ConversionError(
            f"{source or repr(source)} does not exist; name a checkpoint directory, a file of "
            "weights, or a model that PaddleNLP knows by name"
        )
    try:
        with warnings.catch_warnings():  # of the libraries that PaddleNLP imports
            warnings.simplefilter("ignore")
            from paddlenlp.utils.download import resolve_file_path  # imports Paddle: only when a name is asked for
    except ImportError:
        raise ConversionError(
            f"{source} does not exist here, and fetching a model by name needs PaddleNLP; "
            "install paddlenlp==2.8.1, or download the files yourself"
        ) from None
    try:
        files = [resolve_file_path(source, names) for names in _FILES]
    except Exception as error:  # PaddleNLP's own errors, and those of four download libraries
        raise ConversionError(
            f"{source} does not exist here, and PaddleNLP could not fetch a model of that name "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]})"
        ) from None
    if not files[0]:
        raise ConversionError(f"{source} is neither a path here nor the name of a model that PaddleNLP has")
    return Path(files[0]).parent
