"""The heads of pre-training and of tasks, on the encoder that the model's type names."""

from bert.config.architecture import FusedKernels
from bert.config.training_settings import BertConfig
from bert.model.modeling import PLAIN, BertModel, Linear, PredictionHead, linear, zeros
from bert.model.modernbert import ModernBertModel
from bert.runtime.paddle_api import nn

F = nn.functional
ENCODERS: dict[str, type[BertModel]] = {"bert": BertModel, "roberta": BertModel, "modernbert": ModernBertModel}


class BertForPretraining(nn.Layer):
    """The encoder with the masked-LM head, tied to the word embeddings, and the next-sentence head.

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
        self._kernels = kernels

    def forward(self, input_ids, token_type_ids, sequences, masked_lm_positions):
        """Logits at the masked positions, and of the next-sentence task.

        Args:
            masked_lm_positions: int64 [n], flat indices into b * s, or into T if packed.
        Returns:
            (float [n, padded_vocab_size], float [b, 2]); None for the second without next-sentence prediction.
        """
        masked, pooled = self.bert.at(input_ids, token_type_ids, sequences, masked_lm_positions)
        table = self.bert.embeddings.word_embeddings.weight
        logits = linear(self.transform(masked), table, self.decoder_bias, self._kernels, transpose_weight=True)
        return logits, self.seq_relationship(pooled) if self.seq_relationship is not None else None


class BertWithHead(nn.Layer):
    """An encoder with a linear head on every token or on the pooled first one, after dropout if it is a classifier."""

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        name: str,
        *,
        per_token: bool,
        fuse_mha: bool = False,
        kernels: FusedKernels = PLAIN,
    ):
        super().__init__()
        encoder = ENCODERS[config.model_type]
        self.bert = encoder(config, fuse_mha=fuse_mha, kernels=kernels, with_pooler=not per_token)
        # A ModernBERT pools by the same head.
        self.transform = PredictionHead(config, kernels) if per_token and config.is_modern() else None
        self.head = Linear(config, config.hidden_size, num_outputs, name, biased=True)
        self.dropout_prob = config.hidden_dropout_prob if name == "classifier" else 0.0
        self.per_token = per_token

    def forward(self, input_ids, token_type_ids, sequences):
        """Inputs as `BertModel` has them -> float [b, s, num_outputs] or [b, num_outputs]."""
        if not self.per_token:
            return self._logits(self.bert.at(input_ids, token_type_ids, sequences)[1])
        sequences = self.bert.layout(sequences)
        return sequences.padded(self._logits(self.bert(input_ids, token_type_ids, sequences)[0]))

    def _logits(self, states):
        states = self.transform(states) if self.transform is not None else states
        return self.head(F.dropout(states, self.dropout_prob, training=self.training))
