"""`moldau bench`: measures a broker under load. Uses the clients alone, so any Kafka will do."""
