"""Small texts for the quickstarts: documentation found on this machine, and examples written for this project.

Downloads do not belong here; a quickstart needs no network.
"""
