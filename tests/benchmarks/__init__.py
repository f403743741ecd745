"""Our training beside that of other libraries: `bash scripts/benchmark_training.sh`."""
