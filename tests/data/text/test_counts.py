from data.text.importing import QUIET_COUNTS, print_counts


def test_a_launcher_switches_the_counts_off(monkeypatch, capsys):
    print_counts({"documents": 3})
    assert capsys.readouterr().out == "  documents: 3\n"
    monkeypatch.setenv(QUIET_COUNTS, "1")
    print_counts({"documents": 3})
    assert capsys.readouterr().out == ""
