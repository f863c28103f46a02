"""KRaft consensus over the metadata log, as a state machine: events in, effects out."""
