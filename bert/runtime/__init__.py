"""Paddle, Fleet, ranks and processor cores: the only package that touches them directly.

Others take Paddle from `paddle_api` and communication from `distributed`; nothing here knows of models or tasks.
"""
