"""Serves a trained model: JSON over HTTP, and a page to try it. See README.md here."""
