"""What every part shares in a Python process of Spark: its connection, its Java, its errors."""
