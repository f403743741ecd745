"""Makes a built program fast on CPU: each operator gets the fastest of the kernels that compute it.

The pass goes over the program after everything else and changes no variable that outlives a run.

What is left above 2% of an update of BERT-mini (32 x 128 tokens, one thread of a Zen 5 core, bfloat16, milliseconds of
550 on a busy machine; memory gives 40 GB/s to large tensors, the cache 70-110), and why it takes longer than its bytes:
    matrix products 330: arithmetic, at 360-460 GFLOP/s. Attention's gradients (32) are MKL's, in float32.
    AdamW 25: 28 bytes of each of 11.2 million parameters need 8. One operator of Paddle's, seven streams at once; three
        quarters are the word embeddings, so one flat buffer would not change it.
    affine_channel 17: the cross-entropy's two sweeps over 640 x 30,522 logits need 8; see cpu_cross_entropy.py.
    gelu_grad 15: erf and exp are computed, 14 million times.
    elementwise products 15: dropout's factors and clipped gradients, as fast as memory.
    cast 14: weights, activations and gradients to bfloat16, as fast as memory.
"""

from bert.runtime.cpu_bfloat16 import computes_bfloat16, use_bfloat16_products
from bert.runtime.cpu_cross_entropy import replace_cross_entropies
from bert.runtime.cpu_layer_norm import replace_layer_norm_gradients
from bert.runtime.cpu_linear import fold_biases, forward_gradients_of_additions
from bert.runtime.operator_editing import BlockEditor, set_attribute
from bert.runtime.paddle_api import core, static

# oneDNN's kernels that are faster than Paddle's own, on one thread of a Zen 5 core, [4,096, 1,024], milliseconds:
# gelu 3.9 -> 2.1, its gradient 8.9 -> 3.2 (tanh form 2.8 -> 2.7 and 5.6 -> 3.1), layer_norm 1.8 -> 1.5 ([4,096, 256]
# 0.48 -> 0.19). Not softmax (3.9 -> 4.6), tanh and elementwise operators; oneDNN's gradient of a matrix product takes
# twice as long as MKL's, and crashes where one of the two is not wanted, as FLAGS_use_mkldnn=1 would.
ONEDNN_OPERATORS = ("gelu", "gelu_grad", "layer_norm")


def use_cpu_kernels(program: static.Program, *, bfloat16: bool = False) -> None:
    """Choose the kernels of a program that runs on a CPU; nothing is done with a wheel that has CUDA or no oneDNN.

    Args:
        bfloat16: compute the products of linear layers in it, where the processor can.
    """
    if core.is_compiled_with_cuda() or not core.is_compiled_with_mkldnn():
        return
    editor = BlockEditor(program)
    replace_layer_norm_gradients(editor)
    replace_cross_entropies(editor)
    forward_gradients_of_additions(editor)
    fold_biases(editor)
    if bfloat16 and computes_bfloat16():
        use_bfloat16_products(editor)
    for operator in editor.operators(*ONEDNN_OPERATORS):
        set_attribute(operator.desc, "use_mkldnn", True)
    editor.finish()
