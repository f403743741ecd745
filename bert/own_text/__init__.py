"""Pre-training on own text (`--text FOLDER`): facts, plan, data, record, run and report of one folder of files."""
