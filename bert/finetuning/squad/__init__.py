"""SQuAD 1.1 and 2.0: reader, windows, official scores, answers, the task put together."""
