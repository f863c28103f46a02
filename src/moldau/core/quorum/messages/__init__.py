"""The quorum's requests and responses as Kafka's messages, in every version. No decision beyond
which messages are about this cluster and its metadata partition.
"""
