"""What both producers and consumers decide: back-off after errors, and logging in by SASL."""
