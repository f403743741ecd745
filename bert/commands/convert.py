"""Convert a BERT between this project's format and other libraries' formats, or push it to a hub."""

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from bert.config.flags import Flag
from bert.config.plain_commands import read_flags
from bert.config.setting_errors import SettingsWithRules, usage_errors
from bert.conversion.hub_settings import HubRequest
from bert.conversion.settings import MODEL_FORMATS, CardRequest, ConversionRequest, ModelSource

_DESCRIPTION = "Convert a BERT between this project, Hugging Face, PaddleNLP, NVIDIA's Paddle and Google's TensorFlow."


class ConvertRequest(ModelSource, CardRequest, HubRequest, SettingsWithRules):
    """The settings of run_convert.py."""

    source: Annotated[str, Flag(name="--model", hidden_aliases=("--from",), placeholder="DIR_OR_FILE")] = Field(
        description="a checkpoint directory or a file of weights in any of these formats (detected), or a name that "
        "PaddleNLP knows"
    )
    target: Annotated[Path | None, Flag(name="--output-dir", hidden_aliases=("--to",), placeholder="DIR")] = Field(
        None, description="the folder to make"
    )
    to_format: Annotated[
        Literal[*MODEL_FORMATS] | None,  # type: ignore[valid-type]
        Flag(name="--output-format", hidden_aliases=("--to-format",)),
    ] = Field(None, description="the format to write (default: hf with --to-hub)")
    fused_qkv: Annotated[str | None, Flag(placeholder="blocks|heads:NUMBER")] = Field(
        None,
        description="order of columns in the fused attention matrices of NVIDIA's Paddle checkpoints trained with "
        "--fuse-mha",
    )
    allow_unknown: Annotated[bool, Flag()] = Field(
        False, description="leave out tensors that no BERT has, instead of refusing them; they are listed"
    )
    keep_padding: Annotated[bool, Flag()] = Field(
        False,
        description="write the rows that pad the vocabulary to a multiple of 8 to the other formats too, as part of "
        "the vocabulary",
    )
    check: bool = Field(False, description="load the result with PaddleNLP's own classes and compare the outputs")

    def _mistakes(self) -> Iterator[str]:
        if (self.target is None) == (self.to_hub is None):
            yield "give the folder to make, --output-dir DIR, or the name on a hub, --to-hub NAME: one of them"
        if self.to_hub is None and self.to_format is None:
            yield f"--output-dir DIR needs --output-format, one of {', '.join(MODEL_FORMATS)}; add it"
        if self.to_hub is not None and self.to_format not in (None, "hf"):
            yield f"--output-format {self.to_format}: --to-hub writes hf, which transformers loads; omit it"
        if self.to_hub is None and (self.hub_private or self.hub_update or self.hub_token_file):
            yield "--hub-private, --hub-update and --hub-token-file are for --to-hub NAME; omit them"
        if self.check and self.to_format != "paddlenlp":
            yield f"--check: PaddleNLP loads no {self.to_format or 'hf'}; use --output-format paddlenlp, or omit it"

    def conversion(self, target: Path, name: str | None = None) -> ConversionRequest:
        """The settings of the conversion to a folder; `name` is the model's name on its card."""
        values = {field: getattr(self, field) for field in (*ModelSource.model_fields, *CardRequest.model_fields)}
        return ConversionRequest(**values, target=target, to_format=self.to_format or "hf", name=name)


def _require_paddlenlp() -> None:
    if importlib.util.find_spec("paddlenlp") is None:
        raise ValueError(
            f"--check needs PaddleNLP; run `{sys.executable} -m pip install paddlenlp==2.8.1`, with Paddle 2.6, or "
            "omit it"
        )


_EXAMPLES = (
    "--model results/quickstart --output-dir converted --output-format hf",
    "--model bert-large-uncased.pdparams --config-file bert_config.json --output-dir native --output-format native",
)


def main(argv: Sequence[str] | None = None) -> int:
    request = read_flags(ConvertRequest, argv, description=_DESCRIPTION, examples=_EXAMPLES, program="run_convert.py")
    with usage_errors():
        from bert.conversion.converting import convert, table  # not for --help

        if request.check:
            _require_paddlenlp()
            from bert.inference.paddlenlp_check import check_with_paddlenlp  # loads Paddle
        if request.fused_qkv is not None:
            from bert.inference.fused_attention_check import check_fused_qkv  # loads Paddle

            print(check_fused_qkv(request), end="", flush=True)
        if request.target is None:
            from bert.conversion.sharing import share

            def make(folder: Path, name: str) -> dict[str, Any]:
                return convert(request.conversion(folder, name))

            report, address = share(request, make)
            print(f"{table(report)}\npushed: {address}")
        else:
            print(table(convert(request.conversion(request.target), check_with_paddlenlp if request.check else None)))
            print(f"written: {request.target}")
    return 0
