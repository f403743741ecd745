"""Pre-training on the user's text (`--text FOLDER`): facts, plan, data, record, run and report."""
