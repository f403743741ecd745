"""Extraction of a Wikipedia dump: pages, wiki markup to prose, and articles in LDDL's source layout.

Downloading the dump is in `data.fetching` and `data.download_wikipedia`.
"""
