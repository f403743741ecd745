"""Facts of a text and of this machine."""

import pytest

from bert.own_text.facts import machine_facts, text_facts
from bert.runtime.topology import nvidia_smi
from data.text.readers import Reading
from tests.support.chinese_text import letters


def test_facts_of_the_text(tmp_path):
    (tmp_path / "one.txt").write_text("Zwei Wörter.")
    (tmp_path / "rows.jsonl").write_text('{"text": "three more words"}\n{"text": "and four more words"}\n')
    (tmp_path / "paper.txt").write_bytes(b"%PDF-1.4\n\x00\x01\x02")
    facts, _, _ = text_facts([tmp_path], Reading())
    assert (facts.documents, facts.words) == (3, 2 + 3 + 4) and not facts.is_estimate
    assert facts.characters == 12 + 16 + 19 and facts.distinct_characters >= 10


def test_much_text_is_estimated_from_a_part(tmp_path, monkeypatch):
    for number in range(200):
        (tmp_path / f"{number:03}.txt").write_text("word " * 1000)
    monkeypatch.setattr("data.text.survey.MOST_READ_BYTES", 100_000)
    facts, _, _ = text_facts([tmp_path], Reading())
    assert facts.is_estimate and facts.words == pytest.approx(200_000, rel=0.01) and facts.documents == 200


def test_chinese_text_is_recognised(tmp_path):
    texts = {
        "".join(letters(2)): True,
        "臺灣的圖書館早上八點開門，讀者可以自由地借閱書籍。": True,
        "T恤和WiFi：春天来了，大家去公园。": True,
        "これは図書館で書かれた日本語の文章であり、漢字もたくさん使われています。": False,
        "도서관은 아침 여덟 시에 문을 엽니다.": False,
        "The word 茶 means tea; nobody at the table could read it, though all of them drank it.": False,
    }
    for text, is_chinese in texts.items():
        (tmp_path / "one.txt").write_text(text, encoding="utf-8")
        assert text_facts([tmp_path], Reading())[0].is_chinese is is_chinese, text


def test_only_visible_gpus_are_planned_for(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    answer = "A100, 8.0, 81920, 550\\nA100, 8.0, 81920, 550"
    program.write_text(f'#!/bin/sh\n[ "$1" = --list-gpus ] && printf "GPU 0\\nGPU 1\\n" || printf "{answer}\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("bert.own_text.facts.has_package", lambda name: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvidia_smi.cache_clear()
    try:
        facts = [machine_facts(tmp_path)]
        for visible in ("1", ""):
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
            facts.append(machine_facts(tmp_path))
    finally:
        nvidia_smi.cache_clear()
    assert [(one.gpus, one.gpu_name) for one in facts] == [(2, "A100"), (1, "A100"), (0, "")]
    assert ["CUDA_VISIBLE_DEVICES" in one.note for one in facts] == [False, False, True]
