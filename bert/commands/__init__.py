"""The commands behind scripts/: a module for each, read from its arguments to its results. No room imports one."""
