"""Options for Spark's writers of JSON and CSV."""

EXACT_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Formats that keep microseconds; Spark's defaults cut times to milliseconds."""
