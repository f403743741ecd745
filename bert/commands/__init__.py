"""The commands of the root and of scripts/: one module each, from arguments to results. No room imports one."""
