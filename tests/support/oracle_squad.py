"""Reference implementations of SQuAD's evaluation and windows, written from their published definitions.

Slow and literal on purpose: what metrics.py and features.py of bert/finetuning/squad must agree with. Nothing of them
is used here.
"""

import re

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def normal_form(text):
    kept = "".join(character for character in text.lower() if character not in PUNCTUATION)
    # An article is a run of word characters that is "a", "an" or "the".
    out, run = [], ""
    for character in kept + " ":
        if character.isalnum() or character == "_":
            run += character
        else:
            out.append(" " if run in ("a", "an", "the") else run)
            run = ""
            out.append(character)
    return " ".join("".join(out).split())


def exact(prediction, answer):
    return 1 if normal_form(prediction) == normal_form(answer) else 0


def overlap_f1(prediction, answer, version):
    predicted, right = normal_form(prediction).split(), normal_form(answer).split()
    if version == 2 and (not predicted or not right):
        return 1 if predicted == right else 0
    remaining, same = list(right), 0
    for word in predicted:
        if word in remaining:
            remaining.remove(word)
            same += 1
    if same == 0:
        return 0
    precision, recall = same / len(predicted), same / len(right)
    return 2 * precision * recall / (precision + recall)


def squad_1(answers, predictions):
    total_exact = total_f1 = 0
    for identity in answers:
        if identity in predictions:
            total_exact += max(exact(predictions[identity], text) for text in answers[identity])
            total_f1 += max(overlap_f1(predictions[identity], text, 1) for text in answers[identity])
    return {"exact_match": 100 * total_exact / len(answers), "f1": 100 * total_f1 / len(answers)}


def squad_2(answers, predictions, odds):
    raw = {}
    for identity, texts in answers.items():
        if identity in predictions:
            golds = [text for text in texts if normal_form(text)] or [""]
            raw[identity] = (
                max(exact(predictions[identity], gold) for gold in golds),
                max(overlap_f1(predictions[identity], gold, 2) for gold in golds),
            )
    result = {}
    for prefix, wanted in (("", (True, False)), ("HasAns_", (True,)), ("NoAns_", (False,))):
        rows = []
        for identity, pair in raw.items():
            if bool(answers[identity]) in wanted:
                rows.append(pair)
        if rows:
            result[prefix + "exact"] = 100 * sum(row[0] for row in rows) / len(rows)
            result[prefix + "f1"] = 100 * sum(row[1] for row in rows) / len(rows)
            result[prefix + "total"] = len(rows)
    for index, name in enumerate(("exact", "f1")):
        result[f"best_{name}"] = best_score(answers, predictions, odds, raw, index)
    return result


def best_score(answers, predictions, odds, raw, index):
    """Try all thresholds: the questions before the cut, in the order of their odds, are answered, the others not.

    A question without an answer is right when it is not answered, and, if answered, when the prediction is empty.
    """
    order = sorted(odds, key=odds.get)
    best = 0
    for cut in range(len(order) + 1):
        # The official count starts from all questions without answer, those without prediction too.
        score = sum(not texts for identity, texts in answers.items() if identity not in raw)
        for place, identity in enumerate(order):
            if answers[identity]:
                score += raw[identity][index] if place < cut else 0
            else:
                score += 1 if place >= cut or not predictions[identity] else 0
        best = max(best, score)
    return 100 * best / len(raw)


def windows(context_tokens, query_tokens, max_seq_length, doc_stride, max_query_length):
    """Return [(start, length)] of the windows of a paragraph."""
    room = max_seq_length - len(query_tokens[:max_query_length]) - 3
    found, start = [], 0
    while True:
        length = min(len(context_tokens) - start, room)
        found.append((start, length))
        if start + length == len(context_tokens):
            return found
        start += min(length, doc_stride)


def has_max_context(spans, window, token):
    """Tell whether this window, of all windows (start, length) with the token, gives it the most context."""
    scores = {}
    for index, (start, length) in enumerate(spans):
        if start <= token < start + length:
            scores[index] = min(token - start, start + length - 1 - token) + 0.01 * length
    best = max(scores.values())
    return window == next(index for index, score in scores.items() if score == best)


def best_answers(context, token_spans, windows_of, start_logits, end_logits, n_best, max_answer_length):
    """Return [(text, score)] of one question: try every span of every window; logits are per window's paragraph tokens.

    A span that begins or ends within a word of Latin letters and digits has all of it.
    """
    words = [match.span() for match in re.finditer(r"[^\W_\u3040-\u9fff]+", context)]
    scored = []
    for index, (start, length) in enumerate(windows_of):
        for first in range(length):
            if not has_max_context(windows_of, index, start + first):
                continue
            for last in range(first, min(length, first + max_answer_length)):
                score = float(start_logits[index][first]) + float(end_logits[index][last])
                begin, end = token_spans[start + first][0], token_spans[start + last][1]
                begin = next((word[0] for word in words if word[0] < begin < word[1]), begin)
                end = next((word[1] for word in words if word[0] < end < word[1]), end)
                scored.append((score, context[begin:end]))
    best = {}
    for score, text in sorted(scored, key=lambda pair: -pair[0]):
        best.setdefault(text, score)
    return list(best.items())[:n_best]
