"""Trained models in use: exported programs, prediction through Paddle Inference, question answering.

Nothing here trains, or reads a format itself: weights come through `bert.conversion`.
"""
