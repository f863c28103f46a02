"""The Kafka client. It knows no broker's insides."""
