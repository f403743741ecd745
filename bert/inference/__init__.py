"""Trained models in use: exported programs, prediction, question answering.

Trains nothing.
"""
