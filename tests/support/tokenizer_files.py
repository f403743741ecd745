"""Small tokenizer.json files of other tokenizers than BERT's, trained on the spot."""

from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = (
    "The capital of France is Paris, and the river there is the Seine. A café (near the river) is open.",
    "Cats sleep; dogs bark. The kitten in word3 plays with 3 balls, naïvely.  It is fast and good.",
    "word1 word2 word3 word4 are words of no language. Is the capital old? The city is old.",
)
ANGLES = ("<s>", "<pad>", "</s>", "<unk>")
BRACKETS = ("[UNK]", "[CLS]", "[SEP]", "[PAD]")


@cache
def content(kind: str, size: int = 400) -> bytes:
    """kind: roberta (byte-level BPE, </s></s> between texts), modernbert (byte-level BPE), unigram or wordpiece (with
    accents kept)."""
    names, mask = (ANGLES, "<mask>") if kind in ("roberta", "unigram") else (BRACKETS, "[MASK]")
    special = [*names, AddedToken(mask, lstrip=True)]
    if kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=size, special_tokens=special, unk_token="<unk>", show_progress=False
        )
    elif kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    tokenizer.train_from_iterator(TEXT * 5, trainer)
    if kind == "modernbert":
        tokenizer.add_tokens(["  ", "   "])  # as the published one has them
    if kind == "roberta":
        frame = [(name, tokenizer.token_to_id(name)) for name in ("</s>", "<s>")]
        tokenizer.post_processor = processors.RobertaProcessing(*frame, add_prefix_space=False)
    else:
        cls, sep = (names[1], names[2]) if names is BRACKETS else (names[0], names[2])
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B:1 {sep}:1",
            special_tokens=[(name, tokenizer.token_to_id(name)) for name in (cls, sep)],
        )
    return tokenizer.to_str().encode()


def write(folder: Path, kind: str, size: int = 400) -> Path:
    """Write the file FOLDER/tokenizer.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(content(kind, size))
    return folder / "tokenizer.json"
