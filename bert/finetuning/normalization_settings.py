"""Settings of case, accents and word segmentation before WordPiece; by default as in the model's files."""

from pydantic import Field, model_validator

from bert.config.settings_base import Settings
from bert.tokenization.normalization import Normalization
from bert.tokenization.segmentation import Cutter, version_of


class NormalizationSettings(Settings):
    """Text normalisation before tokenisation. A tokenizer.json with other rules than BERT's follows its own."""

    do_lower_case: bool = Field(
        True, description="lower-case the text, for uncased vocabularies; other tokenizers decide themselves"
    )
    strip_accents: bool | None = Field(None, description="strip accents (default: if the text is lower-cased)")
    word_segmenter: Cutter | None = Field(
        None,
        description="cut Thai, Lao, Khmer, Burmese and Javanese into words, if the weights were trained so (default: "
        "off)",
    )
    equal_letters: bool = Field(
        False, description="e\u0301 and \u00e9 get the same tokens (NFC), if the weights were trained so"
    )

    @model_validator(mode="after")
    def _segmenter_is_installed(self) -> "NormalizationSettings":
        if self.word_segmenter is not None:
            version_of(self.word_segmenter)
        return self

    def normalization(self) -> Normalization:
        return Normalization(self.do_lower_case, self.strip_accents, self.word_segmenter, self.equal_letters)
