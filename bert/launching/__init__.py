"""From a script's arguments to processes: plans, preparation of data, ranks on one machine or many, what came out."""
