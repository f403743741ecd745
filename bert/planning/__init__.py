"""Memory, time and cost of a recipe on hardware that is not here."""
