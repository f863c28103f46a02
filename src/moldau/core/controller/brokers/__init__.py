"""Which brokers and controllers exist and are alive: registrations, sessions, directories."""
