"""Jobs: a command line as steps in order, with one executor and one record of the time used. Knows no task."""
