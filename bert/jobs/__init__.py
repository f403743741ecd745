"""What a command line stands for as a job: steps in order, one executor, one record of what was used. Knows no task."""
