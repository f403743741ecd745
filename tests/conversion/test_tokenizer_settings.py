"""Settings of a tokenizer beside a model's weights, each file written by hand."""

from bert.conversion.tokenizer_settings import stated_normalization, tokenizer_warnings


def test_the_tokenizers_own_settings_come_before_those_of_its_pipeline(put, tmp_path):
    assert stated_normalization(tmp_path) == {}
    put("tokenizer_config.json", {"do_lower_case": False, "strip_accents": None, "word_segmenter": "jieba"})
    put("tokenizer.json", {"normalizer": {"strip_accents": True, "lowercase": True}})
    assert stated_normalization(tmp_path) == {"lowercase": False, "word_segmenter": "jieba"}
    put("vocab.txt", "[PAD]\n")  # the tokenizer.json is then beside it
    assert stated_normalization(tmp_path) == {"lowercase": False, "strip_accents": True, "word_segmenter": "jieba"}
    put("tokenizer_config.json", {"do_lower_case": "no", "strip_accents": False})
    assert stated_normalization(tmp_path) == {"strip_accents": False}


def test_chinese_characters_that_stay_whole_are_warned_of(put, tmp_path):
    put("tokenizer_config.json", {"tokenize_chinese_chars": False})
    assert tokenizer_warnings(tmp_path) == []  # the rules of its tokenizer.json are followed
    put("vocab.txt", "[PAD]\n")
    (warning,) = tokenizer_warnings(tmp_path)
    assert warning.startswith(f"tokenize_chinese_chars=false of the tokenizer in {tmp_path} is not followed")
    put("tokenizer.json", {"normalizer": {"handle_chinese_chars": False}})
    put("tokenizer_config.json", {"tokenize_chinese_chars": True})
    assert tokenizer_warnings(tmp_path) == []
    put("tokenizer_config.json", {})
    assert len(tokenizer_warnings(tmp_path)) == 1
    put("tokenizer.json", "{")
    assert tokenizer_warnings(tmp_path) == []
