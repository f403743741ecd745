"""Question answering on SQuAD 1.1 and 2.0: reader, windows, official scores, answers and recipes.

Nothing here depends on GLUE or NER; answering questions with a trained model is in `bert.inference`.
"""
