"""Encoders with the heads of pre-training and of tasks."""

from bert.config.architecture import FusedKernels
from bert.config.training_settings import BertConfig
from bert.model.head_specs import TOKEN_WEIGHTS
from bert.model.modeling import PLAIN, BertModel, Linear, PredictionHead, linear, zeros
from bert.model.modernbert import ModernBertModel
from bert.runtime.paddle_api import nn

F = nn.functional
ENCODERS: dict[str, type[BertModel]] = {"bert": BertModel, "roberta": BertModel, "modernbert": ModernBertModel}


class BertForPretraining(nn.Layer):
    """An encoder with a masked-LM head, tied to the word embeddings, and a next-sentence head.

    Without next-sentence prediction there is no pooler either: nothing would train it.
    """

    def __init__(
        self,
        config: BertConfig,
        *,
        fuse_mha: bool = False,
        kernels: FusedKernels = PLAIN,
        with_next_sentence: bool = True,
    ):
        super().__init__()
        encoder = ENCODERS[config.model_type]
        self.bert = encoder(config, fuse_mha=fuse_mha, kernels=kernels, with_pooler=with_next_sentence)
        self.transform = PredictionHead(config, kernels)
        self.decoder_bias = self.create_parameter(
            [config.padded_vocab_size()], attr=zeros("cls.predictions.bias"), is_bias=True
        )
        hidden = config.hidden_size
        self.seq_relationship = Linear(config, hidden, 2, "cls.seq_relationship") if with_next_sentence else None
        self._kernels, self._vocab_size = kernels, config.vocab_size

    def forward(self, input_ids, token_type_ids, sequences, masked_lm_positions):
        """Logits at the masked positions, and logits of the next-sentence task.

        Args:
            masked_lm_positions: int64 [n], flat indices into b * s, or into T if packed.
        Returns:
            (float [n, padded_vocab_size], float [b, 2]); None for the second without next-sentence prediction.
        """
        masked, pooled = self.bert.at(input_ids, token_type_ids, sequences, masked_lm_positions)
        logits = self._word_logits(masked)
        return logits, self.seq_relationship(pooled) if self.seq_relationship is not None else None

    def everywhere(self, input_ids, token_type_ids, sequences):
        """Masked-LM logits at every token, float [b, s, vocab_size], as in exports (and next-sentence logits)."""
        states, _ = self.bert.at(input_ids, token_type_ids, sequences)
        return self._word_logits(states)[:, :, : self._vocab_size]

    def _word_logits(self, states):
        table = self.bert.embeddings.word_embeddings.weight
        return linear(self.transform(states), table, self.decoder_bias, self._kernels, transpose_weight=True)


class TokenWeights(nn.Layer):
    """A linear part of a classifier's logits that skips the encoder ("wide and deep"; Cheng et al., 2016).

    It is the sum of one weight for each token and class over the tokens of a text, divided by the square root of their
    number. No training program has it: `bert.labels.token_learning` fits the weights.
    """

    def __init__(self, config: BertConfig, num_classes: int):
        super().__init__()
        self.table = nn.Embedding(config.padded_vocab_size(), num_classes, weight_attr=zeros(TOKEN_WEIGHTS))

    def forward(self, input_ids, sequences):
        """The logits of token ids int64 [b, s], or [T] if packed: float32 [b, classes]."""
        return sequences.sums_by_root(self.table(input_ids))


class BertWithHead(nn.Layer):
    """An encoder with a linear head on every token or on the pooled first one; classifiers have dropout.

    With `token_weights`, a head on the pooled token adds `TokenWeights` to its outputs.
    """

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        name: str,
        *,
        per_token: bool,
        token_weights: bool = False,
        fuse_mha: bool = False,
        kernels: FusedKernels = PLAIN,
    ):
        super().__init__()
        encoder = ENCODERS[config.model_type]
        self.bert = encoder(config, fuse_mha=fuse_mha, kernels=kernels, with_pooler=not per_token)
        # A ModernBERT pools by the same head.
        self.transform = PredictionHead(config, kernels) if per_token and config.is_modern() else None
        self.head = Linear(config, config.hidden_size, num_outputs, name, biased=True)
        self.token_weights = TokenWeights(config, num_outputs) if token_weights else None
        self.dropout_prob = config.hidden_dropout_prob if name == "classifier" else 0.0
        self.per_token = per_token

    def forward(self, input_ids, token_type_ids, sequences):
        """Outputs of the head, float [b, s, num_outputs] or [b, num_outputs]; inputs as in `BertModel`."""
        sequences = self.bert.layout(sequences)
        if not self.per_token:
            logits = self._logits(self.bert.at(input_ids, token_type_ids, sequences)[1])
            if self.token_weights is None:
                return logits
            return logits.astype("float32") + self.token_weights(input_ids, sequences)
        return sequences.padded(self._logits(self.bert(input_ids, token_type_ids, sequences)[0]))

    def _logits(self, states):
        states = self.transform(states) if self.transform is not None else states
        return self.head(F.dropout(states, self.dropout_prob, training=self.training))
