"""The active controller at work, and the way to it from a broker in the same process."""
