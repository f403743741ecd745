"""Small texts for the quickstarts: documentation found on this machine, and sets written for this project.

Downloads do not belong here; a quickstart needs no network.
"""
