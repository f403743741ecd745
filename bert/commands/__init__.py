"""The commands of the root and of scripts/: a module for each, read from its arguments to its results. No room imports one."""
