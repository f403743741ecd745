"""Small texts for the quickstarts: documentation found on this machine, and sets written for this project."""
