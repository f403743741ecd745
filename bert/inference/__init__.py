"""Use of trained models: export, prediction through Paddle Inference, question answering.

Nothing here trains. Weights are read through `bert.conversion`.
"""
