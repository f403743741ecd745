"""Wikipedia's dump -> pages -> prose -> LDDL's source layout."""
