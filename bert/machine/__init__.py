"""What this machine has and how its cores are used."""
