"""Checkpoints of other libraries, read and written with numpy alone: no Paddle, no torch, no TensorFlow, no unpickling.

    readers   safetensors_file, torch_file, paddle_file, tensorflow_file   a file -> RawTensors under its own names
    names     our_names, flat_names                                        those names -> ours, and back
    values    layout                                                       orientation, dtype, padded vocabulary
    settings  model_description                                            config.json and its relatives -> BertConfig
    writers   writing                                                      our names -> a directory others can load

`bert.conversion.reading.read_pretrained` puts the reading half together.
"""
