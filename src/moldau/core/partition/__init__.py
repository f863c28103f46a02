"""A partition as its leader sees it: which appends are accepted and which records are committed."""
