"""Options for Spark's writers of JSON and CSV."""

EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""For JSON and CSV: Spark would cut times to milliseconds."""
