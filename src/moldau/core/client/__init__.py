"""What clients decide: no I/O, no clock, no chance. `moldau.client` does it."""
