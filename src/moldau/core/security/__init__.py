"""SCRAM credentials: how they are derived and how users of the format command are parsed."""
