"""Paddle, Fleet, ranks and processor cores: the only package that accesses them directly.

Others take Paddle from `paddle_api` and communication from `distributed`. Nothing here depends on models or tasks.
"""
