"""A kept baseline: a linear model of TF-IDF features of words or characters, stored as arrays and JSON.

Its files are read without running anything that they hold. `skops` stores scikit-learn's objects, also without pickle,
and gives the same numbers; but of 125,386 n-grams and four classes it makes 83 MB in 5 CPU s, and this module 8 MB in
0.06 CPU s. `skl2onnx` has no n-grams of characters within words, and its words need a locale that the system may lack.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from bert.conversion.untrusted_files import ConversionError, read_json
from bert.conversion.usage import LINEAR_MODEL_FILE
from bert.files import checksum_of, checksum_of_file, write_atomically
from bert.tokenization.equal_letters import normal_form, word_pattern

METHODS: dict[str, dict[str, Any]] = {  # settings of scikit-learn's TfidfVectorizer; titles: BASELINE_TITLES
    "words alone": {"ngram_range": (1, 2), "token_pattern": word_pattern()},
    "characters alone": {"ngram_range": (2, 5), "analyzer": "char_wb"},
}
_OLD_WORDS = {"token_pattern": r"(?u)\b\w+\b"}  # cuts words at combining marks, such as the vowel signs of Hindi
ARRAYS_FILE = "linear_model.safetensors"


@dataclass(frozen=True)
class LinearTextModel:
    """A linear model of TF-IDF features.

    Attributes:
        method: a key of METHODS.
        characters: most characters of a text that are read.
        ngrams: the n features, in order.
        idf: float64 [n], inverse document frequencies.
        coefficients, intercepts: float64 [k, n] and [k]: one row for the number of a regression, for each of several
            labels or for each class, but of two classes for the second alone. An intercept is infinite if all texts of
            the training had the label, or no text.
        classes: int64, the classes that occurred in the training; k of them, or two.
        num_labels: number of the task's labels; 1 for a regression.
        equal_letters: whether texts are normalised, and words keep their combining marks; False for older models.
    """

    method: str
    characters: int
    ngrams: Sequence[str]
    idf: np.ndarray
    coefficients: np.ndarray
    intercepts: np.ndarray
    classes: np.ndarray
    num_labels: int
    equal_letters: bool = True

    @classmethod
    def of(cls, method: str, characters: int, vectorizer: Any, estimator: Any, num_labels: int) -> "LinearTextModel":
        """Make it from a fitted TfidfVectorizer and a fitted OneVsRestClassifier of LogisticRegression, or Ridge."""
        ngrams = sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)
        parts = getattr(estimator, "estimators_", [estimator])
        rows = [_row(part, len(ngrams)) for part in parts]
        coefficients = np.stack([row for row, _ in rows])
        intercepts = np.array([intercept for _, intercept in rows], np.float64)
        classes = np.asarray(getattr(estimator, "classes_", [0]), np.int64)
        idf = np.asarray(vectorizer.idf_, np.float64)
        return cls(method, characters, ngrams, idf, coefficients, intercepts, classes, num_labels)

    @cached_property
    def _vectorizer(self) -> Any:
        """scikit-learn's TfidfVectorizer with the features of this model."""
        from sklearn.feature_extraction.text import TfidfVectorizer  # here: it loads slowly

        form = METHODS[self.method]
        if not self.equal_letters and "token_pattern" in form:
            form = form | _OLD_WORDS
        vectorizer = TfidfVectorizer(**form, sublinear_tf=True, vocabulary=self.ngrams)
        vectorizer.idf_ = self.idf
        return vectorizer

    def read(self, texts: Iterable[Sequence[str]]) -> list[str]:
        """Prepare texts: the texts of a pair are joined, and long texts are cut."""
        read = [" ".join(row)[: self.characters] for row in texts]
        return [*map(normal_form, read)] if self.equal_letters else read

    def sums(self, texts: Sequence[str]) -> np.ndarray:
        """The linear model's sums for m texts, float64 [m, k]; scikit-learn calls them the decision function."""
        return np.asarray(self._vectorizer.transform(texts) @ self.coefficients.T) + self.intercepts

    def logits(self, texts: Sequence[str], several: bool = False) -> np.ndarray:
        """Logits, float64 [m, num_labels], from which `Decision` makes scikit-learn's probabilities; or numbers.

        Args:
            several: whether a text may have several labels.
        """
        sums = self.sums(texts)
        if self.num_labels == 1 or several:
            return sums
        likely = expit(sums)
        if len(self.classes) == 1:
            likely = np.ones_like(likely)
        elif likely.shape[1] == 1:
            likely = np.concatenate([1 - likely, likely], axis=1)
        logits = np.full((len(sums), self.num_labels), -np.inf)
        with np.errstate(divide="ignore"):  # the logarithm of a probability of 0
            logits[:, self.classes] = np.log(likely / likely.sum(axis=1, keepdims=True))
        return logits

    def write(self, folder: Path) -> None:
        from safetensors.numpy import save

        encoded = [ngram.encode("utf-8", "surrogatepass") for ngram in self.ngrams]
        arrays = {
            "ngrams": np.frombuffer(b"".join(encoded), np.uint8),
            "offsets": np.cumsum([0, *map(len, encoded)], dtype=np.int64),
            "idf": self.idf,
            "coefficients": self.coefficients,
            "intercepts": self.intercepts,
            "classes": self.classes,
        }
        content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        names = ("method", "characters", "num_labels", "equal_letters")
        facts: dict[str, Any] = {name: getattr(self, name) for name in names}
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / ARRAYS_FILE, content)
        facts |= {"checksum": checksum_of(content)}
        write_atomically(folder / LINEAR_MODEL_FILE, f"{json.dumps(facts, indent=1)}\n".encode())

    @classmethod
    def load(cls, folder: Path) -> "LinearTextModel":
        """Load a model from its folder. ConversionError (a ValueError) if files are damaged or not of this program."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        path, arrays_path = folder / LINEAR_MODEL_FILE, folder / ARRAYS_FILE
        facts = read_json(path, "the facts of a kept baseline")
        try:
            if checksum_of_file(arrays_path) != facts["checksum"]:
                raise ValueError(f"{ARRAYS_FILE} has another checksum")
            arrays = load_file(arrays_path)
            text, offsets = arrays["ngrams"].tobytes(), arrays["offsets"].tolist()
            places = zip(offsets[:-1], offsets[1:], strict=True)
            ngrams = [text[start:end].decode("utf-8", "surrogatepass") for start, end in places]
            model = cls(
                facts["method"],
                facts["characters"],
                ngrams,
                arrays["idf"],
                arrays["coefficients"],
                arrays["intercepts"],
                arrays["classes"],
                facts["num_labels"],
                bool(facts.get("equal_letters", False)),
            )
            model._check()
        except (OSError, KeyError, TypeError, ValueError, SafetensorError) as error:
            raise ConversionError(f"{folder} holds a kept baseline that is damaged: {error}; write it again") from None
        return model

    def _check(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method={self.method} must be one of {', '.join(METHODS)}")
        k, n = self.coefficients.shape
        fits = len(self.ngrams) == len(self.idf) == n and self.intercepts.shape == (k,)
        fits &= len(self.classes) in ({1} if self.num_labels == 1 else {k, 2} if k == 1 else {k})
        if not fits or self.classes.min() < 0 or self.classes.max() >= self.num_labels:
            raise ValueError("its arrays do not fit together")


def _row(part: Any, size: int) -> tuple[np.ndarray, float]:
    """Coefficients, float64 [size], and intercept of a linear model, or of a constant answer, 0 or 1."""
    if hasattr(part, "coef_"):
        return np.asarray(part.coef_, np.float64).reshape(size), float(np.reshape(part.intercept_, -1)[0])
    return np.zeros(size), np.inf if float(part.y_[0]) > 0 else -np.inf
